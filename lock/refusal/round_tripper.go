package refusal

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
// Found. Too Many Requests has no Status from the API server either, and passes: whoever says that has done nothing.
func RoundTripper(next http.RoundTripper) http.RoundTripper { return &roundTripper{next} }

type roundTripper struct{ next http.RoundTripper }

var _ utilnet.RoundTripperWrapper = (*roundTripper)(nil)

// RoundTrip implements [http.RoundTripper].
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil || response.StatusCode < http.StatusBadRequest || response.StatusCode == http.StatusTooManyRequests || !isForObjects(request.URL.Path) {
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
	return nil, fmt.Errorf("%s, which is no answer of the API server", response.Status)
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper], through which client-go finds the transport below.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

// isForObjects reports whether a path is below a version of an API. Others, such as those of discovery and of probes, are
// answered in words.
func isForObjects(path string) bool {
	_, group, isOfGroup := strings.Cut(path, "/apis/")
	_, core, isOfCore := strings.Cut(path, "/api/")
	return isOfGroup && strings.Count(strings.Trim(group, "/"), "/") >= 2 || isOfCore && strings.Contains(strings.Trim(core, "/"), "/")
}

// protobuf begins each object that the API server encodes in Protobuf, which no proxy does.
const protobuf = "k8s\x00"

func isStatus(body []byte) bool {
	var object metav1.TypeMeta
	return bytes.HasPrefix(body, []byte(protobuf)) || json.Unmarshal(body, &object) == nil && object.Kind == "Status"
}
