package lockhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
)

// maxBodyBytes is the largest body that is read: many times what all members together may have.
const maxBodyBytes = 16 << 10

// acquisition is a checked request for a lock.
type acquisition struct {
	ttl, wait time.Duration
	reason    string
}

func (p *Protection) readAcquisition(w http.ResponseWriter, r *http.Request) (acquisition, error) {
	var body struct {
		TTLSeconds  *float64 `json:"ttl_seconds"`
		WaitSeconds *float64 `json:"wait_seconds"`
		Reason      string   `json:"reason"`
	}
	if err := readBody(w, r, &body); err != nil {
		return acquisition{}, err
	}
	var mistakes []problems.FieldError
	read := acquisition{reason: body.Reason, ttl: p.readTTL(body.TTLSeconds, &mistakes)}
	if body.WaitSeconds != nil {
		read.wait = seconds("wait_seconds", *body.WaitSeconds, 0, p.config.MaxWait, &mistakes)
	}
	if utf8.RuneCountInString(body.Reason) > rules.MaxReasonLength {
		mistakes = append(mistakes, problems.FieldError{In: inBody, Field: "reason", Detail: "is too long", MaxLength: rules.MaxReasonLength})
	}
	return read, refusalOf(mistakes)
}

func (p *Protection) readRenewal(w http.ResponseWriter, r *http.Request) (time.Duration, error) {
	var body struct {
		TTLSeconds *float64 `json:"ttl_seconds"`
	}
	if err := readBody(w, r, &body); err != nil {
		return 0, err
	}
	var mistakes []problems.FieldError
	return p.readTTL(body.TTLSeconds, &mistakes), refusalOf(mistakes)
}

const inBody = "body"

func (p *Protection) readTTL(given *float64, mistakes *[]problems.FieldError) time.Duration {
	const name = "ttl_seconds"
	if given == nil {
		low, high := rules.MinTTL.Seconds(), p.config.MaxTTL.Seconds()
		*mistakes = append(*mistakes, problems.FieldError{In: inBody, Field: name, Detail: "is required", Minimum: &low, Maximum: &high})
		return 0
	}
	return seconds(name, *given, rules.MinTTL, p.config.MaxTTL, mistakes)
}

// seconds returns a duration between the bounds.
func seconds(name string, given float64, least, most time.Duration, mistakes *[]problems.FieldError) time.Duration {
	low, high := least.Seconds(), most.Seconds()
	if given < low || given > high {
		*mistakes = append(*mistakes, problems.FieldError{
			In: inBody, Field: name, Detail: fmt.Sprintf("must be at least %v and at most %v seconds", low, high),
			Value: given, Minimum: &low, Maximum: &high,
		})
		return 0
	}
	return time.Duration(math.Round(given * float64(time.Second)))
}

const ifMatchHeader = "If-Match"

// refuseHeaders returns a problem if a request has one of the headers.
func refuseHeaders(header http.Header, names []string) error {
	details := map[string]string{
		ifMatchHeader:    "must not be given, since a lock has no entity tag",
		locktoken.Header: "must not be given to acquire a lock, which is only granted if it is free; renew it with PUT",
	}
	var mistakes []problems.FieldError
	for _, name := range names {
		if len(header.Values(name)) > 0 {
			mistakes = append(mistakes, problems.FieldError{In: "header", Field: name, Detail: details[name]})
		}
	}
	return refusalOf(mistakes)
}

func refusalOf(mistakes []problems.FieldError) error {
	if len(mistakes) == 0 {
		return nil
	}
	return problems.Invalid(mistakes...)
}

// readBody decodes the JSON object that a request has.
func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != jsonType {
		return problems.New(problems.UnsupportedMediaType, "The content type must be application/json")
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return problems.New(problems.UnsupportedMediaType, "The body must not have a content encoding")
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if _, isTooLarge := errors.AsType[*http.MaxBytesError](err); isTooLarge {
		return problems.New(problems.BodyTooLarge, fmt.Sprintf("The body must be at most %d bytes", maxBodyBytes))
	}
	if err != nil {
		return problems.New(problems.InvalidRequest, "The body could not be read to its end")
	}
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return problems.New(problems.InvalidRequest, "The body must not begin with a byte order mark")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // A misspelled member must not be ignored.
	if err := decoder.Decode(into); err != nil {
		return problems.New(problems.InvalidRequest, "The body is not as described: "+shortened(err.Error()))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return problems.New(problems.InvalidRequest, "The body must be one JSON object, with nothing after it")
	}
	return nil
}

// shortened bounds a text that may repeat what the client has sent.
func shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
