package v1alpha1

import (
	"fmt"
	"strconv"
)

// FencingToken returns the number of the grant that the object records. It is the
// resourceVersion of the write that granted the lock: an etcd revision, which
// grows with every write to the cluster. A later grant of the same full key
// always has a larger number, also after release, deletion and restart. A
// guarded resource that remembers the largest number it has seen and refuses
// smaller ones is safe from holders whose lock has ended. Restoring etcd from a
// backup without a revision bump moves numbers back.
//
// The object must have been read from, or returned by, the API server. There is no
// token to be had from one that is being deleted and was not written before, since
// the API server marks an object as deleted by a write of its own.
func (l *Lock) FencingToken() (int64, error) {
	if l.Spec.FencingToken != nil {
		return *l.Spec.FencingToken, nil
	}
	if !l.DeletionTimestamp.IsZero() {
		return 0, fmt.Errorf("lock %q has no fencing token any more: it is being deleted", l.Name)
	}
	token, err := strconv.ParseInt(l.ResourceVersion, 10, 64)
	if err != nil || token <= 0 {
		return 0, fmt.Errorf("lock %q has no fencing token: resourceVersion %q is not a positive integer", l.Name, l.ResourceVersion)
	}
	return token, nil
}
