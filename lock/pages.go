package lock

import (
	"context"
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Pager is a [Backend] that lists a large namespace in parts.
type Pager interface {
	// ListPage returns held locks of a namespace, ordered by name. Only a page without Continue is the
	// last: one in between may have fewer locks than the limit, even none. The error matches
	// [ErrInvalid] if Continue is not from a page, and [ErrPageExpired] if that page was too long ago.
	ListPage(ctx context.Context, namespace string, request PageRequest) (Page, error)
}

// PageRequest asks for a part of the locks of a namespace.
type PageRequest struct {
	// Holder selects the locks of one holder. Empty selects those of all.
	Holder string
	// Owner selects the locks that are held under this owner token. Empty selects all.
	Owner string
	// Prefix selects the locks whose keys begin with it, without regard to their functions. Empty
	// selects all.
	Prefix string
	// Limit is the largest number of locks in the page. Required.
	Limit int
	// Continue is that of the page before, whose request had the same Holder, Owner and Prefix. Empty means
	// the first page.
	Continue string
	// MayReadMore is asked before each request to the API server that the page takes beyond the first. If
	// it says no, the page ends there. Nil means yes.
	MayReadMore func() bool
}

// Selects reports whether the page is about such a lock. Prefix must be in NFC.
func (r *PageRequest) Selects(held *v1alpha1.Lock) bool {
	return (r.Holder == "" || held.Spec.Holder == r.Holder) && (r.Owner == "" || held.Spec.Owner == r.Owner) && HasPrefix(held, r.Prefix)
}

// HasPrefix reports whether the key of the lock, in NFC, begins with the prefix, which must be in NFC:
// it is the same for many locks. See [v1alpha1.NormalizeKey].
func HasPrefix(lock *v1alpha1.Lock, prefix string) bool {
	return strings.HasPrefix(v1alpha1.NormalizeKey(lock.Spec.Key), prefix)
}

// Page is a part of the locks of a namespace.
type Page struct {
	Locks []v1alpha1.Lock
	// Continue asks for the next page. Empty means that there is none.
	Continue string
}

// InvalidContinue is the error for a Continue that no page had.
func InvalidContinue() error {
	return &InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("continue"), field.OmitValueType{}, "must be that of the page before")}}
}

// PageOf returns the page of a list that is there in whole, ordered by name: for backends that have
// no pages of their own.
func PageOf(held []v1alpha1.Lock, request PageRequest) (Page, error) {
	after, err := base64.RawURLEncoding.DecodeString(request.Continue)
	if err != nil {
		return Page{}, InvalidContinue()
	}
	request.Prefix = v1alpha1.NormalizeKey(request.Prefix)
	var page Page
	for index := range held {
		switch each := &held[index]; {
		case each.Name <= string(after) || !request.Selects(each):
		case len(page.Locks) == request.Limit:
			page.Continue = base64.RawURLEncoding.EncodeToString([]byte(page.Locks[request.Limit-1].Name))
			return page, nil
		default:
			page.Locks = append(page.Locks, *each)
		}
	}
	return page, nil
}
