package nacossource_test

// The messages of the fake, by their descriptor.

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
)

// message is a payload.
type message struct {
	kind    string
	ip      string
	headers map[string]string
	body    map[string]any
}

var payloadType = func() protoreflect.MessageDescriptor {
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, of string) *descriptorpb.FieldDescriptorProto {
		d := &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), Number: proto.Int32(number), Type: kind.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
		if of != "" {
			d.TypeName = proto.String(of)
		}
		return d
	}
	text, sub := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	headers := field("headers", 7, sub, ".Metadata.HeadersEntry")
	headers.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("fake.proto"), Syntax: proto.String("proto3"), Dependency: []string{"google/protobuf/any.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			{
				Name:  proto.String("Metadata"),
				Field: []*descriptorpb.FieldDescriptorProto{field("type", 3, text, ""), field("clientIp", 8, text, ""), headers},
				NestedType: []*descriptorpb.DescriptorProto{{
					Name:    proto.String("HeadersEntry"),
					Field:   []*descriptorpb.FieldDescriptorProto{field("key", 1, text, ""), field("value", 2, text, "")},
					Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
				}},
			},
			{
				Name:  proto.String("Payload"),
				Field: []*descriptorpb.FieldDescriptorProto{field("metadata", 2, sub, ".Metadata"), field("body", 3, sub, ".google.protobuf.Any")},
			},
		},
	}, protoregistry.GlobalFiles)
	if err != nil {
		panic(err)
	}
	return file.Messages().ByName("Payload")
}()

func get(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(name))
}

func decode(p *dynamicpb.Message) (message, error) {
	meta := get(p, "metadata").Message()
	out := message{kind: get(meta, "type").String(), ip: get(meta, "clientIp").String(), headers: map[string]string{}}
	get(meta, "headers").Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		out.headers[k.String()] = v.String()
		return true
	})
	err := json.Unmarshal(get(get(p, "body").Message(), "value").Bytes(), &out.body)
	return out, err
}

func encode(m message) (*dynamicpb.Message, error) {
	body, err := json.Marshal(m.body)
	if err != nil {
		return nil, err
	}
	p := dynamicpb.NewMessage(payloadType)
	fields := payloadType.Fields()
	meta := p.Mutable(fields.ByName("metadata")).Message()
	meta.Set(meta.Descriptor().Fields().ByName("type"), protoreflect.ValueOfString(m.kind))
	meta.Set(meta.Descriptor().Fields().ByName("clientIp"), protoreflect.ValueOfString("192.0.2.1"))
	headers := meta.Mutable(meta.Descriptor().Fields().ByName("headers")).Map()
	headers.Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
	p.Set(fields.ByName("body"), protoreflect.ValueOfMessage((&anypb.Any{TypeUrl: "t", Value: body}).ProtoReflect()))
	return p, nil
}

func receive(s grpc.ServerStream) (message, error) {
	p := dynamicpb.NewMessage(payloadType)
	if err := s.RecvMsg(p); err != nil {
		return message{}, err
	}
	return decode(p)
}

func send(s grpc.ServerStream, m message) error {
	p, err := encode(m)
	if err != nil {
		return err
	}
	return s.SendMsg(p)
}

// server returns a gRPC server that is f.
func (f *fake) server(opts ...grpc.ServerOption) *grpc.Server {
	srv := grpc.NewServer(append(opts, grpc.StatsHandler(f), grpc.WaitForHandlers(true))...)
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "Request", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "request", Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			p := dynamicpb.NewMessage(payloadType)
			if err := dec(p); err != nil {
				return nil, err
			}
			in, err := decode(p)
			if err != nil {
				return nil, err
			}
			out, err := f.unary(ctx, in)
			if err != nil {
				return nil, err
			}
			return encode(out)
		}}},
	}, f)
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "BiRequestStream", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "requestBiStream", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			return f.bidi(s)
		}}},
	}, f)
	return srv
}
