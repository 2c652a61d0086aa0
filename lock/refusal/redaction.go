package refusal

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// WithoutOwners returns an error whose text has none of the owner tokens, in any spelling that an
// API server or a client uses. It matches what err matches. Nil stays nil.
func WithoutOwners(err error, owners ...string) error {
	if err == nil {
		return nil
	}
	before := err.Error()
	if text := redacted(before, owners); text != before {
		return &redactedError{text: text, err: err}
	}
	return err
}

// redactedError is an error with another text.
type redactedError struct {
	text string
	err  error
}

// Error implements error.
func (e *redactedError) Error() string { return e.text }

// Unwrap implements the interface of [errors.Is].
func (e *redactedError) Unwrap() error { return e.err }

func redacted(text string, owners []string) string {
	for _, owner := range owners {
		if owner == "" {
			continue
		}
		for _, spelling := range spellings(owner) {
			text = strings.ReplaceAll(text, spelling, "[owner]")
		}
	}
	return text
}

// spellings returns the token as it is, as a quoted string and JSON spell it, and as the URL of a
// list does that selects it.
func spellings(owner string) []string {
	inside := func(quoted string) string { return quoted[1 : len(quoted)-1] }
	all := []string{owner, inside(strconv.Quote(owner)), url.QueryEscape(fields.EscapeValue(owner))}
	if asJSON, err := json.Marshal(owner); err == nil {
		all = append(all, inside(string(asJSON)))
	}
	return all
}
