package serve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/config"
	apollosource "github.com/spillway-go/spillway/config/source/apollo"
	filesource "github.com/spillway-go/spillway/config/source/file"
	httpsource "github.com/spillway-go/spillway/config/source/http"
	redissource "github.com/spillway-go/spillway/config/source/redis"
	"github.com/spillway-go/spillway/internal/rediscall"
)

// Opener makes a source of a location, and returns what closes it.
type Opener func(location string) (source config.Source, done func(), err error)

// Sources are openers by the scheme of a location. What has no scheme is a file.
type Sources map[string]Opener

// Builtin are the sources without a module of their own.
func Builtin() Sources {
	s := Sources{"file": openFile, "http": openHTTP, "https": openHTTP, "apollo": openApollo, "apollos": openApollo}
	for _, scheme := range []string{"redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel", "env"} {
		s[scheme] = openRedis
	}
	return s
}

// String lists the schemes.
func (s Sources) String() string {
	schemes := slices.Sorted(maps.Keys(s))
	return "a file, or " + strings.Join(schemes, "://, ") + "://; locations on Redis end in #KEY, and env://NAME#KEY has the rest in a variable"
}

// Open makes the source of a location. It asks nobody, and its errors hold nothing of a location that could be secret.
func (s Sources) Open(location string) (config.Source, func(), error) {
	scheme, _, ok := strings.Cut(location, "://")
	if !ok {
		return s["file"](location)
	}
	open := s[scheme]
	if open == nil {
		return nil, nil, fmt.Errorf("there is no such source: want %s", s)
	}
	return open(location)
}

func nothing() {}

func openFile(location string) (config.Source, func(), error) {
	path, isURL := strings.CutPrefix(location, "file://")
	if isURL && !strings.HasPrefix(path, "/") {
		return nil, nil, errors.New("a file:// location has three slashes, as file:///etc/spillway/policies.yaml")
	}
	src, err := filesource.New(filesource.Config{Path: path})
	return src, nothing, err
}

func openHTTP(location string) (config.Source, func(), error) {
	src, err := httpsource.New(httpsource.Config{URL: location})
	return src, nothing, err
}

func openApollo(location string) (config.Source, func(), error) {
	const form = "apollo://HOST:8080/APPID[/CLUSTER]#NAMESPACE, as apollo://config:8080/shop#limits.yaml"
	p, err := ParsePlace(location, "apollo", form)
	if err != nil {
		return nil, nil, err
	}
	c := apollosource.Config{Servers: p.URLs(), Namespace: p.Name, AccessKey: Password()}
	switch len(p.Path) {
	case 1:
		c.AppID = p.Path[0]
	case 2:
		c.AppID, c.Cluster = p.Path[0], p.Path[1]
	default:
		return nil, nil, errors.New("want " + form)
	}
	src, err := apollosource.New(c)
	return src, nothing, err
}

func openRedis(location string) (config.Source, func(), error) {
	where, key, _ := strings.Cut(location, "#")
	if key == "" {
		return nil, nil, errors.New("a location on Redis ends in # and the key, as redis://127.0.0.1:6379/0#shop:policies")
	}
	if name, ok := strings.CutPrefix(where, "env://"); ok {
		where = "env:" + name
	}
	client, err := rediscall.Open(where)
	if err != nil {
		return nil, nil, err
	}
	src, err := redissource.New(redissource.Config{Client: client, Key: key})
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return src, func() { _ = client.Close() }, nil
}
