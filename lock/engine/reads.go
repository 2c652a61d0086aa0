package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// listChunk is how many locks one request lists at most.
	listChunk = 1000
	// maxListed is how many locks all lists that are under way ask for at most: answers are in memory
	// as a whole, and large if the locks are.
	maxListed = 2000
)

// List returns the held locks of a namespace from the API server, ordered by name. The error
// matches [lock.ErrUnavailable].
func (e *Engine) List(ctx context.Context, namespace string, filter lock.Filter) ([]v1alpha1.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	options := metav1.ListOptions{Limit: listChunk}
	if filter.Owner != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.owner", filter.Owner).String()
	}
	var held []v1alpha1.Lock
	for isLast := false; !isLast; {
		chunk, err := e.listChunk(ctx, namespace, options)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, e.requestError("list locks in namespace "+namespace, err, filter.Owner)
		}
		for index := range chunk.Items {
			if lock := &chunk.Items[index]; !rules.Expired(lock, e.clock.Now()) {
				held = append(held, *lock)
			}
		}
		options.Continue, isLast = chunk.Continue, chunk.Continue == ""
	}
	slices.SortFunc(held, func(a, b v1alpha1.Lock) int { return cmp.Compare(a.Name, b.Name) })
	return held, nil
}

const (
	// maxPageChunks bounds the lists that one page takes.
	maxPageChunks = 10
	// maxPageBytes bounds the texts of the locks in a page, but for one lock: 500 usual ones fit.
	maxPageBytes = 256 << 10
)

// ListPage implements [lock.Pager] with the lists of the API server, whose pages of one list are all of
// one state.
func (e *Engine) ListPage(ctx context.Context, namespace string, request lock.PageRequest) (lock.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	at, err := parsePagePosition(request.Continue)
	if err != nil {
		return lock.Page{}, err
	}
	options := metav1.ListOptions{FieldSelector: fieldSelector(request)}
	request.Prefix = v1alpha1.NormalizeKey(request.Prefix)
	isProbed, err := e.checkReached(ctx, namespace, at)
	if err != nil {
		return lock.Page{}, e.pageError(namespace, request.Owner, at, err)
	}
	page := partialPage{request: &request, at: at}
	for read := range maxPageChunks {
		if err := ctx.Err(); err != nil { // The caller has gone, or waits no longer.
			return lock.Page{}, e.pageError(namespace, request.Owner, page.at, err)
		}
		if (read > 0 || isProbed) && request.MayReadMore != nil && !request.MayReadMore() {
			break
		}
		options.Limit, options.Continue = int64(min(request.Limit, listChunk)), page.at.Chunk
		if request.Prefix != "" { // The API server cannot select by it.
			options.Limit = listChunk
		}
		chunk, err := e.listChunk(ctx, namespace, options)
		if err != nil {
			return lock.Page{}, e.pageError(namespace, request.Owner, page.at, err)
		}
		e.listed.reach(versionOfList(chunk))
		if !page.add(chunk, e.clock.Now()) {
			break
		}
		if chunk.Continue == "" {
			return lock.Page{Locks: page.locks}, nil
		}
		page.at.Chunk = chunk.Continue
		if len(page.locks) == request.Limit {
			break
		}
	}
	return lock.Page{Locks: page.locks, Continue: page.at.text()}, nil
}

// partialPage is a page as far as it has been read.
type partialPage struct {
	request *lock.PageRequest
	locks   []v1alpha1.Lock
	// bytes are those of the texts of locks.
	bytes int
	// at is where the rest begins.
	at pagePosition
}

// add adds the locks of a chunk to the page. It reports whether all of them had room that belong to it.
func (p *partialPage) add(chunk *v1alpha1.LockList, now time.Time) (isWhole bool) {
	for index := range chunk.Items {
		item := &chunk.Items[index]
		switch {
		case item.Name <= p.at.After || rules.Expired(item, now) || !p.request.Selects(item):
		case len(p.locks) == p.request.Limit, p.bytes >= maxPageBytes:
			return false
		default:
			p.locks = append(p.locks, listed(item))
			p.bytes += textBytes(item)
			p.at.After = item.Name
		}
	}
	return true
}

// listed returns what pages tell of a lock, without all else that it may be large by: the page is in memory
// until its answer is sent.
func listed(item *v1alpha1.Lock) v1alpha1.Lock {
	spec := item.Spec
	spec.Guards = nil
	return v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: item.Namespace, Name: item.Name, UID: item.UID,
			ResourceVersion: item.ResourceVersion, DeletionTimestamp: item.DeletionTimestamp,
		},
		Spec: spec,
	}
}

// fieldSelector selects the locks of a page as far as the API server can.
func fieldSelector(request lock.PageRequest) string {
	switch {
	case request.Owner != "":
		return fields.OneTermEqualSelector("spec.owner", request.Owner).String()
	case request.Holder != "":
		return fields.OneTermEqualSelector("spec.holder", request.Holder).String()
	}
	return ""
}

// pageError tells a position that is no longer, or was never, one of the API server's. Its chunk is what
// the caller says.
func (e *Engine) pageError(namespace, owner string, at pagePosition, err error) error {
	operation := "list locks in namespace " + namespace
	if at.Chunk == "" {
		return e.requestError(operation, err, owner)
	}
	switch {
	// A version that is yet to come was made up, or is that of another API server, which is ahead.
	// Either way the list has to begin again.
	case errors.Is(err, lock.ErrPageExpired), apierrors.IsResourceExpired(err),
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return fmt.Errorf("%s: %w", operation, lock.ErrPageExpired)
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		return lock.InvalidContinue()
	}
	return e.requestError(operation, err, owner)
}

// textBytes returns the bytes of the texts by which doors describe a lock. All else has few bytes.
func textBytes(lock *v1alpha1.Lock) int {
	spec := &lock.Spec
	bytes := len(spec.Key) + len(spec.Function) + len(spec.Owner) + len(spec.Holder) + len(spec.Reason)
	if ref := spec.HolderRef; ref != nil {
		bytes += len(ref.APIVersion) + len(ref.Kind) + len(ref.Name) + len(ref.UID)
	}
	return bytes
}

// checkReached refuses a chunk of a version that is yet to come: the API server would wait three seconds
// for it. A version later than all that this engine has listed may be that of another replica's list, so
// one small list, of which isProbed tells, shows the present version.
func (e *Engine) checkReached(ctx context.Context, namespace string, at pagePosition) (isProbed bool, err error) {
	version := at.version()
	if version <= e.listed.latest() {
		return false, nil
	}
	present, err := e.listChunk(ctx, namespace, metav1.ListOptions{Limit: 1})
	if err != nil {
		return true, err
	}
	e.listed.reach(versionOfList(present))
	if version > e.listed.latest() {
		return true, lock.ErrPageExpired
	}
	return true, nil
}

// listVersion is the latest resourceVersion that lists of the API server have had. It is safe for
// concurrent use.
type listVersion struct{ value atomic.Uint64 }

func (v *listVersion) latest() uint64 { return v.value.Load() }

func (v *listVersion) reach(version uint64) {
	for known := v.value.Load(); version > known; known = v.value.Load() {
		if v.value.CompareAndSwap(known, version) {
			return
		}
	}
}

// versionOfList returns zero if the list has none.
func versionOfList(list *v1alpha1.LockList) uint64 {
	version, _ := strconv.ParseUint(list.ResourceVersion, 10, 64)
	return version
}

// pagePosition is where a page begins: in a chunk of the API server, after a name.
type pagePosition struct {
	Chunk string `json:"chunk,omitempty"`
	After string `json:"after,omitempty"`
}

func (p pagePosition) text() string {
	text, _ := json.Marshal(p) // It cannot fail: there are only texts.
	return base64.RawURLEncoding.EncodeToString(text)
}

// maxPosition has room for the position of any page: a name and a chunk, which has another name.
const maxPosition = 4 << 10

func parsePagePosition(text string) (at pagePosition, err error) {
	switch {
	case text == "":
		return at, nil
	case len(text) > maxPosition: // It would go to the API server as a part of a URL.
		return at, lock.InvalidContinue()
	}
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(decoded, &at) != nil {
		return at, lock.InvalidContinue()
	}
	return at, nil
}

// version returns the resourceVersion that the chunk continues a list of, as API servers spell it today.
// It is zero if it is spelled in another way, or if the chunk names none: then the API server judges.
func (p pagePosition) version() uint64 {
	decoded, err := base64.RawURLEncoding.DecodeString(p.Chunk)
	if err != nil {
		return 0
	}
	var chunk struct {
		Version int64 `json:"rv"`
	}
	if json.Unmarshal(decoded, &chunk) != nil {
		return 0
	}
	return uint64(max(0, chunk.Version))
}

// listChunk makes one request for a list with a limit, when the others leave room for its answer.
func (e *Engine) listChunk(ctx context.Context, namespace string, options metav1.ListOptions) (*v1alpha1.LockList, error) {
	if err := e.lists.Acquire(ctx, options.Limit); err != nil {
		return nil, err
	}
	defer e.lists.Release(options.Limit)
	return e.objects(namespace).List(ctx, options)
}

// Get returns the lock as stored in etcd. The answer may be out of date when it arrives; it does
// not protect a write.
//
// The error matches [lock.ErrNotHeld], from expireTime on also [lock.ErrExpired] if the lock has not
// been deleted yet, or [lock.ErrUnavailable], or is that of ctx.
func (e *Engine) Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	operation, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	current, err := get(operation, e.objects(namespace), key.ObjectName())
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
	case current == nil:
		err = lock.ErrNotHeld
	case rules.Expired(current, e.clock.Now()):
		err = lock.ErrExpired
	default:
		return current, nil
	}
	return nil, e.requestError(fmt.Sprintf("get %s in namespace %s", key, namespace), err)
}
