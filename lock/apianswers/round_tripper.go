package apianswers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// ErrNotServed means that there was no answer about an object, but Not Found without a word: the API server does not serve its
// kind, or a proxy on the way does not reach the API server.
var ErrNotServed = errors.New("the API server does not serve the kind, or a proxy on the way does not reach it")

// RoundTripper returns a transport that makes an error of each answer to a request for objects that refuses it, and is no
// [metav1.Status]: a proxy on the way may have passed the request on. The error matches [ErrNotServed] if the answer was Not
// Found. Unauthorized and Too Many Requests pass: whoever says so has done nothing. It is for [k8s.io/client-go/rest.Config.Wrap].
func RoundTripper(next http.RoundTripper) http.RoundTripper { return &roundTripper{next} }

type roundTripper struct{ next http.RoundTripper }

var _ utilnet.RoundTripperWrapper = (*roundTripper)(nil)

// RoundTrip implements [http.RoundTripper].
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil || !IsJudged(request, response.StatusCode) {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	switch {
	case isStatus(body):
		response.Body = io.NopCloser(bytes.NewReader(body))
		return response, nil
	case response.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", response.Status, ErrNotServed)
	}
	return nil, fmt.Errorf("%s, which is no Status of the API server", response.Status)
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], through which client-go finds the transport below.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

// IsJudged reports whether an answer with the code passes through a [RoundTripper] only if the API server has made it.
func IsJudged(request *http.Request, code int) bool {
	mayBeOfProxy := code == http.StatusUnauthorized || code == http.StatusTooManyRequests
	return code >= http.StatusBadRequest && !mayBeOfProxy && isForObjects(request.URL.EscapedPath())
}

// isForObjects reports whether a path is below a version of an API. Others, such as those of discovery and of probes, are
// answered in words. The API server may have a path of its own.
func isForObjects(path string) bool {
	if at := strings.LastIndex(path, "/apis/"); at >= 0 {
		return strings.Count(strings.Trim(path[at+len("/apis/"):], "/"), "/") >= 2
	}
	_, below, isOfCore := strings.Cut(path, "/api/v1/")
	return isOfCore && below != ""
}

// protobuf begins each object that the API server encodes in Protobuf, which no proxy does.
const protobuf = "k8s\x00"

// isStatus knows a Status also by what it says: that of a request that took too long has no kind.
func isStatus(body []byte) bool {
	var object metav1.Status
	return bytes.HasPrefix(body, []byte(protobuf)) || json.Unmarshal(body, &object) == nil && (object.Kind == "Status" || object.Status == metav1.StatusFailure)
}
