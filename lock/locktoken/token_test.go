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

func TestATokenOfASetIsOfItsLocks(t *testing.T) {
	keys := []v1alpha1.FullKey{"lock:a", "lock:b"}
	token := locktoken.SetToken{Secret: locktoken.NewSecret(), FencingTokens: []int64{7, 12}}
	text := token.Text(namespace, keys)
	read, isOfLocks := locktoken.ParseSet(text, namespace, keys)
	if !isOfLocks || read.Secret != token.Secret || read.Grant(0).FencingToken != 7 || read.Grant(1).FencingToken != 12 {
		t.Errorf("%s reads as %v, %t", text, read, isOfLocks)
	}
	for name, isOfLocks := range map[string]bool{
		"another namespace": ofSet(locktoken.ParseSet(text, "shop2", keys)),
		"another key":       ofSet(locktoken.ParseSet(text, namespace, []v1alpha1.FullKey{"lock:a", "lock:c"})),
		"one key less":      ofSet(locktoken.ParseSet(text, namespace, keys[:1])),
		"one key more":      ofSet(locktoken.ParseSet(text, namespace, append(keys, "lock:c"))),
		"another order":     ofSet(locktoken.ParseSet(text, namespace, []v1alpha1.FullKey{"lock:b", "lock:a"})),
		"another grant":     ofSet(locktoken.ParseSet(strings.Replace(text, "_7-12_", "_8-12_", 1), namespace, keys)),
		"another spelling":  ofSet(locktoken.ParseSet(strings.Replace(text, "_7-12_", "_7-012_", 1), namespace, keys)),
		"one grant":         ofSet(locktoken.ParseSet(token.Grant(0).Text(namespace, "lock:a"), namespace, keys[:1])),
		"many grants":       ofSet(locktoken.ParseSet(strings.Replace(text, "_7-12_", "_"+strings.Repeat("7-", 1<<16)+"7_", 1), namespace, keys)),
	} {
		if isOfLocks {
			t.Errorf("%s: it was taken for a token of the locks", name)
		}
	}
}

func ofSet(_ locktoken.SetToken, isOfLocks bool) bool { return isOfLocks }

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
