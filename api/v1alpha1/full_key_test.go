package v1alpha1

import (
	"strings"
	"testing"
)

func TestFullKey(t *testing.T) {
	cases := map[string]struct {
		spec LockSpec
		want FullKey
	}{
		"global":                       {spec: LockSpec{Key: "billing:report", Scope: ScopeGlobal}, want: "lock:billing:report"},
		"function":                     {spec: LockSpec{Key: "user:123", Scope: ScopeFunction, Function: "payments.charge"}, want: "lock:payments.charge:user:123"},
		"a global key with the prefix": {spec: LockSpec{Key: "lock:a", Scope: ScopeGlobal}, want: "lock:lock:a"},
		"another normal form":          {spec: LockSpec{Key: "e\u0301", Scope: ScopeGlobal}, want: "lock:\u00e9"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := test.spec.FullKey(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestValidateKey(t *testing.T) {
	cases := map[string]struct {
		key  string
		want string
	}{
		"one byte":                              {key: "a"},
		"512 bytes":                             {key: strings.Repeat("a", 512)},
		"512 bytes only after normalisation":    {key: strings.Repeat("e\u0301", 256)},
		"513 bytes":                             {key: strings.Repeat("a", 513), want: "must be at most 512 bytes of UTF-8 after NFC normalisation, not 513"},
		"171 characters of three bytes":         {key: strings.Repeat("日", 171), want: "must be at most 512 bytes of UTF-8 after NFC normalisation, not 513"},
		"empty":                                 {want: "must not be empty"},
		"a line feed":                           {key: "a\nb", want: "must not contain control characters"},
		"a null":                                {key: "\x00", want: "must not contain control characters"},
		"a control character beyond ASCII":      {key: "\u0085", want: "must not contain control characters"},
		"bytes that are not UTF-8":              {key: "a\xff", want: "must be valid UTF-8"},
		"printable text of any kind is allowed": {key: "Grüße, 日本 — ok?"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := ValidateKey(test.key); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestValidateOwnerDoesNotRepeatTheToken(t *testing.T) {
	token := strings.Repeat("secret", 100)
	err := ValidateOwner(token)
	if err == nil {
		t.Fatal("a token of 600 bytes is accepted")
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error repeats the token: %v", err)
	}
}
