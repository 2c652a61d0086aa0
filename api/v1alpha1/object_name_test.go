package v1alpha1

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

func TestObjectName(t *testing.T) {
	cases := map[string]struct {
		bare string
		want string
	}{
		"a colon becomes two dashes":                 {bare: "billing:report", want: "billing--report"},
		"a function and its key are joined":          {bare: "payments.charge:user:123", want: "payments.charge--user--123"},
		"a plain word is its own name":               {bare: "nightly", want: "nightly"},
		"a single dash stays":                        {bare: "web-shop:stock", want: "web-shop--stock"},
		"two colons are four dashes":                 {bare: "a::b", want: "a----b"},
		"a key that starts with lock: keeps it":      {bare: "lock:a", want: "lock--a"},
		"upper case is hashed":                       {bare: "billing.generateReport:x", want: "billing-generatereport-x.xvzhaznszokcmwxkcmlovx7iy3od5dkn4"},
		"two literal dashes are hashed":              {bare: "a--b", want: "a-b.x"},
		"a dash beside a colon is hashed":            {bare: "a-:b", want: "a-b.x"},
		"a colon beside a dash is hashed":            {bare: "a:-b", want: "a-b.x"},
		"a colon at the start is hashed":             {bare: ":a", want: "a.x"},
		"a colon at the end is hashed":               {bare: "a:", want: "a.x"},
		"a colon beside a dot is hashed":             {bare: "a.:b", want: "a-b.x"},
		"a key with no fit character has a fallback": {bare: "日本", want: "lock.x"},
		"spaces are hashed":                          {bare: "two words", want: "two-words.x"},
		"a long slug is cut":                         {bare: strings.Repeat("Ab", 60), want: strings.Repeat("ab", 20) + ".x"},
		"what looks like a hashed name is hashed":    {bare: "a.x" + strings.Repeat("a", 32), want: "a-x" + strings.Repeat("a", 32) + ".x"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := FullKeyOf(test.bare).ObjectName()
			if strings.HasSuffix(test.want, ".x") {
				// The hash itself is pinned by one case; here its place and length count.
				if hash, ok := strings.CutPrefix(got, test.want); !ok || len(hash) != 32 {
					t.Errorf("ObjectName(%q) = %q, want %q and a hash of 32 characters", test.bare, got, test.want)
				}
				return
			}
			if got != test.want {
				t.Errorf("ObjectName(%q) = %q, want %q", test.bare, got, test.want)
			}
		})
	}
}

func TestObjectNameLength(t *testing.T) {
	longest := strings.Repeat("a", 253)
	if got := FullKeyOf(longest).ObjectName(); got != longest {
		t.Errorf("a key of 253 characters is not its own name: %q", got)
	}
	if got := FullKeyOf(longest + "a").ObjectName(); !hashedName.MatchString(got) {
		t.Errorf("a key of 254 characters has a name that is not hashed: %q", got)
	}
}

func TestObjectNameIgnoresNormalForm(t *testing.T) {
	composed, decomposed := norm.NFC.String("café:ü"), norm.NFD.String("café:ü")
	if composed == decomposed {
		t.Fatal("the two forms are equal, the test shows nothing")
	}
	if a, b := FullKeyOf(composed).ObjectName(), FullKeyOf(decomposed).ObjectName(); a != b {
		t.Errorf("NFC gives %q, NFD gives %q", a, b)
	}
}

// decode undoes the readable form.
func decode(name string) string {
	return strings.ReplaceAll(name, "--", ":")
}

// checkName holds for every key whatsoever.
func checkName(t interface {
	Helper()
	Fatalf(string, ...any)
}, bare string) {
	t.Helper()
	key := FullKeyOf(bare)
	name := key.ObjectName()
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		t.Fatalf("ObjectName(%q) = %q is not a valid name: %v", bare, name, problems)
	}
	if again := key.ObjectName(); again != name {
		t.Fatalf("ObjectName(%q) is once %q and once %q", bare, name, again)
	}
	if hashedName.MatchString(name) {
		return
	}
	if got := decode(name); got != key.Bare() {
		t.Fatalf("the readable name %q of %q reads as %q: it loses something", name, bare, got)
	}
}

// tricky draws keys from the characters on which the two forms could be confused.
func tricky() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[ab:.\-]{1,8}`),
		rapid.StringMatching(`[a-z0-9:.\-]{1,20}`),
		rapid.StringMatching(`[ab:\-]{0,3}\.x[a-z2-7]{31,33}`),
		rapid.String(),
	)
}

func TestObjectNameIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := tricky().Draw(t, "a"), tricky().Draw(t, "b")
		checkName(t, a)
		if FullKeyOf(a) != FullKeyOf(b) && FullKeyOf(a).ObjectName() == FullKeyOf(b).ObjectName() {
			t.Fatalf("%q and %q share the name %q", a, b, FullKeyOf(a).ObjectName())
		}
	})
}

// TestObjectNameIsInjectiveOnShortKeys tries every short key over the characters
// that matter, which random keys hit too seldom.
func TestObjectNameIsInjectiveOnShortKeys(t *testing.T) {
	const alphabet = "ax:-."
	owner := map[string]string{}
	var extend func(prefix string, left int)
	extend = func(prefix string, left int) {
		if prefix != "" {
			checkName(t, prefix)
			name := FullKeyOf(prefix).ObjectName()
			if other, taken := owner[name]; taken {
				t.Fatalf("%q and %q share the name %q", prefix, other, name)
			}
			owner[name] = prefix
		}
		if left == 0 {
			return
		}
		for _, character := range alphabet {
			extend(prefix+string(character), left-1)
		}
	}
	extend("", 6)
}

func FuzzObjectName(f *testing.F) {
	for _, seed := range []string{"billing:report", "a--b", "a-:b", "é", "A", "", "a.x" + strings.Repeat("a", 32)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, bare string) {
		if !utf8.ValidString(bare) {
			return
		}
		checkName(t, bare)
	})
}
