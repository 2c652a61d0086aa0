package locktoken_test

import (
	"strings"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/locktoken"
)

const (
	namespace = "shop"
	key       = v1alpha1.FullKey("lock:flag:feature-x")
)

func TestSecrets(t *testing.T) {
	if first, second := locktoken.NewSecret(), locktoken.NewSecret(); first == second || first.IsDerived() {
		t.Error("two secrets are equal, or look derived")
	}
	derived := locktoken.DeriveSecret("a", "bc")
	if derived != locktoken.DeriveSecret("a", "bc") || derived == locktoken.DeriveSecret("ab", "c") || derived == locktoken.DeriveSecret("a", "bc", "") || !derived.IsDerived() {
		t.Error("a secret is not that of its parts")
	}
}

func TestATokenIsOfOneLock(t *testing.T) {
	token := locktoken.Token{Secret: locktoken.NewSecret(), FencingToken: 7}
	text := token.Text(namespace, key)
	if read, isOfLock := locktoken.Parse(text, namespace, key); !isOfLock || read != token {
		t.Errorf("%s reads as %v, %t", text, read, isOfLock)
	}
	for name, isOfLock := range map[string]bool{
		"another namespace": of(locktoken.Parse(text, "shop2", key)),
		"another key":       of(locktoken.Parse(text, namespace, key+"2")),
		"another grant":     of(locktoken.Parse(strings.Replace(text, "_7_", "_8_", 1), namespace, key)),
		"another spelling":  of(locktoken.Parse(strings.Replace(text, "_7_", "_07_", 1), namespace, key)),
		"in capitals":       of(locktoken.Parse(strings.ToUpper(text), namespace, key)),
		"too much":          of(locktoken.Parse(text+"a", namespace, key)),
		"too little":        of(locktoken.Parse(text[:len(text)-1], namespace, key)),
		"nothing":           of(locktoken.Parse("", namespace, key)),
	} {
		if isOfLock {
			t.Errorf("%s: it was taken for a token of the lock", name)
		}
	}
}

func of(_ locktoken.Token, isOfLock bool) bool { return isOfLock }

func FuzzParse(f *testing.F) {
	f.Add(locktoken.Token{FencingToken: 1}.Text(namespace, key))
	f.Add("lock_a_1_a")
	f.Fuzz(func(t *testing.T, text string) {
		if token, isOfLock := locktoken.Parse(text, namespace, key); isOfLock && token.Text(namespace, key) != text {
			t.Errorf("%q has another spelling", text)
		}
	})
}
