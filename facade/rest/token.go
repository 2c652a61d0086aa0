package rest

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strconv"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/locks"
)

// lockToken proves a grant. It names the grant: so a token of a grant that has ended is told from one
// that was never the lock's, though nothing is kept of locks that have ended.
type lockToken struct {
	secret locks.Secret
	// fencing is the fencing token of the grant.
	fencing int64
}

const (
	tokenPrefix = "lock_"
	tagBytes    = 8
)

var tokenDigits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// text returns the token as its caller is told it. The tag at its end binds it to the lock.
func (t lockToken) text(namespace string, key v1alpha1.FullKey) string {
	return tokenPrefix + tokenDigits.EncodeToString(t.secret[:]) + "_" + strconv.FormatInt(t.fencing, 10) + "_" + tokenDigits.EncodeToString(t.tag(namespace, key))
}

func (t lockToken) tag(namespace string, key v1alpha1.FullKey) []byte {
	hash := sha256.New()
	hash.Write(t.secret[:])
	hash.Write(binary.BigEndian.AppendUint64(nil, uint64(t.fencing))) //nolint:gosec // only the bits matter
	// Neither has a zero byte.
	hash.Write([]byte(namespace + "\x00" + string(key)))
	return hash.Sum(nil)[:tagBytes]
}

// parseToken returns the token with this text, and reports whether it was made for the lock.
func parseToken(text, namespace string, key v1alpha1.FullKey) (lockToken, bool) {
	body, ok := strings.CutPrefix(text, tokenPrefix)
	parts := strings.Split(body, "_")
	if !ok || len(parts) != 3 {
		return lockToken{}, false
	}
	secret, err := tokenDigits.DecodeString(parts[0])
	if err != nil || len(secret) != locks.SecretBytes {
		return lockToken{}, false
	}
	fencing, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || fencing <= 0 {
		return lockToken{}, false
	}
	token := lockToken{locks.Secret(secret), fencing}
	// The whole text is compared: each token has one spelling.
	return token, token.text(namespace, key) == text
}
