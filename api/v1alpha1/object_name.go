package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// hashBytes of SHA-256 are kept: 160 bits, which base32 writes in 32
	// characters without padding.
	hashBytes = 20
	// maxSlugLength keeps a hashed name short enough for a terminal line.
	maxSlugLength = 40
)

var (
	hashEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

	// hashedName matches the second form, so that no readable name can equal one.
	hashedName = regexp.MustCompile(`\.x[a-z2-7]{32}$`)

	unfitForSlug = regexp.MustCompile(`[^a-z0-9]+`)
)

// ObjectName returns the only name that a Lock with this full key may have.
// Different full keys never share a name.
//
// The readable form is the bare key with "--" for each ":". It is used where it
// can be undone and is a DNS-1123 subdomain. All other keys get
// "<slug>.x<hash>", where the slug is for people and the hash decides.
func (k FullKey) ObjectName() string {
	if name, ok := k.readableName(); ok {
		return name
	}
	sum := sha256.Sum256([]byte(k))
	return slug(k.Bare()) + ".x" + hashEncoding.EncodeToString(sum[:hashBytes])
}

func (k FullKey) readableName() (string, bool) {
	bare := k.Bare()
	// With these three gone every run of dashes is either one literal dash or an
	// even number of them, two for each colon.
	for _, ambiguous := range []string{"--", "-:", ":-"} {
		if strings.Contains(bare, ambiguous) {
			return "", false
		}
	}
	name := strings.ReplaceAll(bare, ":", "--")
	if hashedName.MatchString(name) || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", false
	}
	return name, true
}

// slug is a readable hint at the key: a DNS-1123 label of 1 to maxSlugLength characters.
func slug(bare string) string {
	text := unfitForSlug.ReplaceAllString(strings.ToLower(bare), "-")
	text = strings.Trim(text[:min(len(text), maxSlugLength)], "-")
	if text == "" {
		return "lock"
	}
	return text
}
