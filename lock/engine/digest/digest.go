// Package digest tells whether two watches of locks have shown the same: it sums up the locks that a
// watch has shown, at each resourceVersion.
package digest

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Digest is the sum of all locks at a resourceVersion. Two watches that have lost nothing have the
// same sum at the same version. The zero value is none.
type Digest struct {
	version, sum uint64
}

// String returns the digest as [Parse] reads it; empty for none.
func (d Digest) String() string {
	if d == (Digest{}) {
		return ""
	}
	return fmt.Sprintf("%d/%016x", d.version, d.sum)
}

// Parse returns a digest in the form of [Digest.String], and false for any other text. Another way
// to sum up needs another form: replicas of different releases must not compare their sums.
func Parse(text string) (Digest, bool) {
	version, sum, _ := strings.Cut(text, "/")
	parsedVersion, ok := parseVersion(version)
	parsedSum, err := strconv.ParseUint(sum, 16, 64)
	return Digest{parsedVersion, parsedSum}, ok && err == nil
}

// parseVersion returns a resourceVersion as a number, and false for what no watch goes on from.
func parseVersion(text string) (uint64, bool) {
	version, err := strconv.ParseUint(text, 10, 64)
	return version, err == nil && version > 0
}

// hashOf returns the hash of one state of a lock. The same in all processes.
func hashOf(uid types.UID, version string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid)) // It never fails.
	_, _ = hash.Write([]byte{0})
	_, _ = hash.Write([]byte(version))
	mixed := hash.Sum64()
	// FNV mixes its last byte little, so the differences that two lost updates make could cancel
	// each other. This is the finaliser of SplitMix64.
	mixed = (mixed ^ mixed>>30) * 0xbf58476d1ce4e5b9
	mixed = (mixed ^ mixed>>27) * 0x94d049bb133111eb
	return mixed ^ mixed>>31
}
