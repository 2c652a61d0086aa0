package lockhttp

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/strictjson"
)

// maxBodyBytes is the largest body that is read: many times what all members together may have.
const maxBodyBytes = 16 << 10

// acquisition is a checked request for a lock.
type acquisition struct {
	ttl, wait time.Duration
	reason    string
}

func (p *Protection) readAcquisition(w http.ResponseWriter, r *http.Request) (acquisition, error) {
	var mistakes problems.Mistakes
	body, err := readBody(w, r, &mistakes)
	if err != nil {
		return acquisition{}, err
	}
	read := acquisition{
		ttl:    body.RequiredSeconds("ttl_seconds", rules.MinTTL, p.config.MaxTTL),
		wait:   body.Seconds("wait_seconds", 0, p.config.MaxWait),
		reason: body.Text("reason"),
	}
	if utf8.RuneCountInString(read.reason) > rules.MaxReasonLength {
		mistakes.Add(problems.FieldError{In: "body", Field: "reason", Detail: "is too long", MaxLength: rules.MaxReasonLength})
	}
	body.RefuseOthers()
	return read, mistakes.Problem()
}

func (p *Protection) readRenewal(w http.ResponseWriter, r *http.Request) (time.Duration, error) {
	var mistakes problems.Mistakes
	body, err := readBody(w, r, &mistakes)
	if err != nil {
		return 0, err
	}
	ttl := body.RequiredSeconds("ttl_seconds", rules.MinTTL, p.config.MaxTTL)
	body.RefuseOthers()
	return ttl, mistakes.Problem()
}

const ifMatchHeader = "If-Match"

// refuseHeaders returns a problem if a request has one of the headers.
func refuseHeaders(header http.Header, names []string) error {
	details := map[string]string{
		ifMatchHeader:    "must not be given, since a lock has no entity tag",
		locktoken.Header: "must not be given to acquire a lock, which is only granted if it is free; renew it with PUT",
	}
	var mistakes problems.Mistakes
	for _, name := range names {
		if len(header.Values(name)) > 0 {
			mistakes.Add(problems.FieldError{In: "header", Field: name, Detail: details[name]})
		}
	}
	return mistakes.Problem()
}

// readBody returns the members of the JSON object that a request has.
func readBody(w http.ResponseWriter, r *http.Request, mistakes *problems.Mistakes) (strictjson.Members, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != jsonType {
		return strictjson.Members{}, problems.New(problems.UnsupportedMediaType, "The content type must be application/json")
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return strictjson.Members{}, problems.New(problems.UnsupportedMediaType, "The body must not have a content encoding")
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if _, isTooLarge := errors.AsType[*http.MaxBytesError](err); isTooLarge {
		return strictjson.Members{}, problems.New(problems.BodyTooLarge, fmt.Sprintf("The body must be at most %d bytes", maxBodyBytes))
	}
	if err != nil {
		return strictjson.Members{}, problems.New(problems.InvalidRequest, "The body could not be read to its end")
	}
	return mistakes.ReadBody(text)
}
