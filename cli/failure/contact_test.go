package failure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"forrst.dev/lock-operator/lock"
)

func TestAnErrorOfTheConnectionIsToldAsWhatItIs(t *testing.T) {
	const doctor = "kubectl lock doctor --context far"
	impersonation := apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, "bob", errors.New(`User "ann" cannot impersonate resource "users"`))
	untrusted := &url.Error{Op: "Get", URL: "https://x", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}
	for name, test := range map[string]struct {
		err  error
		code Code
		do   []string
	}{
		"an unknown caller":     {lock.ErrUnauthenticated, Refused, []string{doLogIn}},
		"a refused --as":        {impersonation, Refused, []string{doImpersonate}},
		"a right that is not":   {apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("x")), Refused, []string{doAskRights}},
		"an untrusted server":   {untrusted, Unavailable, []string{doTrust}},
		"a server that is away": {&url.Error{Err: errors.New("refused")}, Unavailable, []string{doTryAgain, "find out what is wrong: " + doctor}},
	} {
		if got := From(test.err, doctor); got.Code != test.code || !slices.Equal(got.Do, test.do) {
			t.Errorf("%s: %d, %q", name, got.Code, got.Do)
		}
	}
}
