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

func TestAServiceThatServesNothingIsToldAsWhatItIs(t *testing.T) {
	untrusted := &url.Error{Op: "Get", URL: "https://x", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}
	for want, err := range map[string]error{
		"it does not know you":                    apierrors.NewUnauthorized("x"),
		"it does not let you act as another user": apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, "bob", errors.New(`User "ann" cannot impersonate resource "users"`)),
		"it refuses you":                          apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("x")),
		"its certificate is not trusted":          untrusted,
		"it does not accept your certificate":     &url.Error{Err: errors.New("remote error: tls: bad certificate")},
		"your credentials were not to be had":     &url.Error{Err: errors.New("getting credentials: exec: executable x not found")},
		"it answers with an error":                apierrors.NewInternalError(errors.New("x")),
		"it does not answer":                      &url.Error{Err: errors.New("connection refused")},
	} {
		if got, do := Contact(err); got != want || do == "" {
			t.Errorf("%v: %q, %q; want %q", err, got, do, want)
		}
	}
}
