package locktoken

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Header is the HTTP header that a caller shows a token in.
const Header = "X-Lock-Token"

// Token proves a grant. It names the grant: so a token of a grant that has ended is told from one that
// was never the lock's, though nothing is kept of locks that have ended.
type Token struct {
	Secret Secret
	// FencingToken is that of the grant.
	FencingToken int64
}

const (
	prefix   = "lock_"
	tagBytes = 8
)

var digits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Text returns the token as its caller is told it. The tag at its end binds it to the lock; it needs no
// key, and proves nothing.
func (t Token) Text(namespace string, key v1alpha1.FullKey) string {
	return prefix + digits.EncodeToString(t.Secret[:]) + "_" + strconv.FormatInt(t.FencingToken, 10) + "_" + digits.EncodeToString(t.tag(namespace, key))
}

func (t Token) tag(namespace string, key v1alpha1.FullKey) []byte {
	hash := sha256.New()
	hash.Write(t.Secret[:])
	hash.Write(binary.BigEndian.AppendUint64(nil, uint64(t.FencingToken)))
	// Neither has a zero byte.
	hash.Write([]byte(namespace + "\x00" + string(key)))
	return hash.Sum(nil)[:tagBytes]
}

// Parse returns the token with this text, and reports whether it was made for the lock.
func Parse(text, namespace string, key v1alpha1.FullKey) (Token, bool) {
	body, ok := strings.CutPrefix(text, prefix)
	parts := strings.Split(body, "_")
	if !ok || len(parts) != 3 {
		return Token{}, false
	}
	secret, err := digits.DecodeString(parts[0])
	if err != nil || len(secret) != SecretBytes {
		return Token{}, false
	}
	fencing, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || fencing <= 0 {
		return Token{}, false
	}
	token := Token{Secret(secret), fencing}
	// The whole text is compared: each token has one spelling.
	return token, token.Text(namespace, key) == text
}
