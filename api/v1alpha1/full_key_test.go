package v1alpha1

import (
	"strings"
	"testing"
	"unicode"
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
		"white space inside":                    {key: "a \u00a0\u3000b"},
		"an Arabic number sign, which is shown": {key: "\u0600\u0661"},
		"a space at the end":                    {key: "deploy ", want: "must not begin or end with white space: character 7 is U+0020"},
		"a space at the beginning":              {key: " deploy", want: "must not begin or end with white space: character 1 is U+0020"},
		"a space alone":                         {key: " ", want: "must not begin or end with white space: character 1 is U+0020"},
		"a no-break space at the end":           {key: "für\u00a0", want: "must not begin or end with white space: character 4 is U+00A0"},
		"a line separator at the end":           {key: "a\u2028", want: "must not begin or end with white space: character 2 is U+2028"},
		"a zero width space":                    {key: "de\u200bploy", want: "must not contain invisible characters: character 3 is U+200B"},
		"a byte order mark":                     {key: "\ufeffdeploy", want: "must not contain invisible characters: character 1 is U+FEFF"},
		"a soft hyphen":                         {key: "de\u00adploy", want: "must not contain invisible characters: character 3 is U+00AD"},
		"an emoji of two that are joined":       {key: "\U0001F468\u200d\U0001F680", want: "must not contain invisible characters: character 2 is U+200D"},
		"an emoji with a variation selector":    {key: "\u2764\ufe0f", want: "must not contain invisible characters: character 2 is U+FE0F"},
		"a tag":                                 {key: "a\U000E0041", want: "must not contain invisible characters: character 2 is U+E0041"},
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

// By the derivation in the Unicode Character Database, DerivedCoreProperties.txt. A version of Go with another version of
// Unicode may derive more; the patterns of the schemas follow then, see test/docs.
func TestInvisibleCharactersAreDefaultIgnorable(t *testing.T) {
	isExempt := func(char rune) bool {
		const firstAnnotation, lastAnnotation, firstHieroglyph, lastHieroglyph = 0xfff9, 0xfffb, 0x13430, 0x13440
		return unicode.In(char, unicode.White_Space, unicode.Prepended_Concatenation_Mark) ||
			char >= firstAnnotation && char <= lastAnnotation || char >= firstHieroglyph && char <= lastHieroglyph
	}
	found := 0
	for char := range rune(unicode.MaxRune + 1) {
		isDerived := unicode.In(char, unicode.Other_Default_Ignorable_Code_Point, unicode.Cf, unicode.Variation_Selector) && !isExempt(char)
		if got := unicode.Is(defaultIgnorable, char); got != isDerived {
			t.Errorf("%U: invisible %t, want %t", char, got, isDerived)
		}
		if isDerived {
			found++
		}
	}
	if found != 4174 { // As that file counts them.
		t.Errorf("%d characters are invisible", found)
	}
}

// A lock that an earlier release has granted can be named.
func TestStoredKeysMayBeInvisible(t *testing.T) {
	for _, key := range []string{"deploy ", "\u00a0deploy", "de\u200bploy"} {
		if err := ValidateStoredKey(key); err != nil || ValidateKey(key) == nil {
			t.Errorf("%q: stored %v, new %v", key, err, ValidateKey(key))
		}
	}
	if ValidateStoredKey("a\nb") == nil || ValidateStoredKey("") == nil {
		t.Error("accepts what no release has")
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
