// Package fingerprint makes texts that may be logged out of texts that may not.
package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
)

// size is how many bytes of the hash are told.
const size = 12

// Of returns the first 96 bits of the SHA-256 of the text in hex; nothing of nothing.
func Of(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	var digits [2 * size]byte
	hex.Encode(digits[:], sum[:size])
	return string(digits[:])
}
