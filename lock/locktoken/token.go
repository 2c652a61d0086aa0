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

// Text returns the token as its caller is told it. The tag at its end binds it to the lock; it needs no
// key, and proves nothing.
func (t Token) Text(namespace string, key v1alpha1.FullKey) string {
	return text(prefix, t.Secret, []int64{t.FencingToken}, namespace, []v1alpha1.FullKey{key})
}

// Parse returns the token with this text, and reports whether it was made for the lock.
func Parse(given, namespace string, key v1alpha1.FullKey) (Token, bool) {
	secret, grants, isOfLock := parse(prefix, given, namespace, []v1alpha1.FullKey{key})
	if !isOfLock {
		return Token{}, false
	}
	return Token{secret, grants[0]}, true
}

// SetToken proves grants that were made together, all to one secret.
type SetToken struct {
	Secret Secret
	// FencingTokens are those of the grants, in the order of their locks.
	FencingTokens []int64
}

// Text returns the token as its caller is told it, see [Token.Text]. The keys are those of the locks, in their order.
func (t SetToken) Text(namespace string, keys []v1alpha1.FullKey) string {
	return text(setPrefix, t.Secret, t.FencingTokens, namespace, keys)
}

// Grant returns the token of one of the grants.
func (t SetToken) Grant(number int) Token { return Token{t.Secret, t.FencingTokens[number]} }

// ParseSet returns the token with this text, and reports whether it was made for these locks, in their order.
func ParseSet(given, namespace string, keys []v1alpha1.FullKey) (SetToken, bool) {
	secret, grants, isOfLocks := parse(setPrefix, given, namespace, keys)
	return SetToken{secret, grants}, isOfLocks
}

const (
	prefix    = "lock_"
	setPrefix = "locks_"
	tagBytes  = 8
)

var digits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func text(prefix string, secret Secret, grants []int64, namespace string, keys []v1alpha1.FullKey) string {
	hash := sha256.New()
	hash.Write(secret[:])
	numbers := make([]string, len(grants))
	for index, number := range grants {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(number)))
		numbers[index] = strconv.FormatInt(number, 10)
	}
	hash.Write([]byte(namespace))
	for _, key := range keys { // Neither a namespace nor a key has a zero byte.
		hash.Write([]byte("\x00" + string(key)))
	}
	return prefix + digits.EncodeToString(secret[:]) + "_" + strings.Join(numbers, "-") + "_" + digits.EncodeToString(hash.Sum(nil)[:tagBytes])
}

func parse(prefix, given, namespace string, keys []v1alpha1.FullKey) (secret Secret, grants []int64, isOfLocks bool) {
	body, ok := strings.CutPrefix(given, prefix)
	parts := strings.Split(body, "_")
	if !ok || len(parts) != 3 {
		return Secret{}, nil, false
	}
	decoded, err := digits.DecodeString(parts[0])
	if err != nil || len(decoded) != SecretBytes {
		return Secret{}, nil, false
	}
	secret = Secret(decoded)
	for part := range strings.SplitSeq(parts[1], "-") {
		number, err := strconv.ParseInt(part, 10, 64)
		if err != nil || number <= 0 || len(grants) == len(keys) {
			return Secret{}, nil, false
		}
		grants = append(grants, number)
	}
	// The whole text is compared: each token has one spelling.
	return secret, grants, len(grants) == len(keys) && text(prefix, secret, grants, namespace, keys) == given
}
