package tokenfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// maxBytes is more than the longest proof takes: owner token and key of 512 bytes each, escaped.
const maxBytes = 16 << 10

// Proof is what a command keeps of a grant for the next one. Its text is a JSON object on one line.
type Proof struct {
	// Namespace and Key say which lock is meant, for people and for the check of [Proof.IsFor]. Key
	// is the full key. Both are empty in a proof that was read from a bare owner token.
	Namespace string           `json:"namespace,omitempty"`
	Key       v1alpha1.FullKey `json:"key,omitempty"`
	// Owner is the owner token, which is a secret. Required.
	Owner string `json:"owner"`
	// FencingToken is the number of the grant. Zero means whichever grant the owner token has.
	FencingToken int64 `json:"fencingToken,omitempty"`
}

// String names the lock without the owner token: it is safe to log.
func (p Proof) String() string { return string(p.Key) }

// GoString is String: %#v must not show the owner token either.
func (p Proof) GoString() string { return p.String() }

// ErrOtherLock means that a proof is one of another lock than the command names.
var ErrOtherLock = errors.New("the token is one of another lock")

// IsFor returns an error that matches [ErrOtherLock] if the proof names another lock.
func (p Proof) IsFor(namespace string, key v1alpha1.FullKey) error {
	isOther := p.Key != "" && p.Key != key || p.Namespace != "" && namespace != "" && p.Namespace != namespace
	if isOther {
		return fmt.Errorf("%w: it is for %s in namespace %s", ErrOtherLock, p.Key, p.Namespace)
	}
	return nil
}

// Read reads a proof: the JSON object that [Proof.Write] makes, or a bare owner token with at most one
// line break after it. The error never repeats what was read.
func Read(from io.Reader) (Proof, error) {
	content, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	if err != nil {
		return Proof{}, fmt.Errorf("read the owner token: %w", err)
	}
	if len(content) > maxBytes {
		return Proof{}, fmt.Errorf("read the owner token: there are more than %d bytes", maxBytes)
	}
	var proof Proof
	if err := json.Unmarshal(content, &proof); err != nil || proof.Owner == "" {
		proof = Proof{Owner: string(withoutLineBreak(content))}
	}
	if err := v1alpha1.ValidateOwner(proof.Owner); err != nil {
		return Proof{}, fmt.Errorf("the owner token %w", err)
	}
	return proof, nil
}

func withoutLineBreak(content []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(content, []byte("\n")), []byte("\r"))
}

// Write writes the proof.
func (p Proof) Write(to io.Writer) error {
	content, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = to.Write(append(content, '\n'))
	return err
}
