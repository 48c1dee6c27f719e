package etcdsource

import "go.etcd.io/etcd/api/v3/mvccpb"

// version is the revision of the store at which the key was changed last; 0: it is not there.
func version(kv *mvccpb.KeyValue) int64 {
	if kv.CreateRevision == 0 { // the event of a removal
		return 0
	}
	return kv.ModRevision
}
