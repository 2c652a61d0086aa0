package server

import (
	"bytes"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
)

// maxBeginning bytes of a review tell whose it is: the API server sends the objects last. It is more than it permits for names.
const maxBeginning = 16 << 10

// requestOf returns what the beginning of a review says of its request: user, operation, namespace, name, and whether it is a dry
// run. What comes after an object that does not end within it is left out, as is what cannot be read.
func requestOf(text []byte) *admissionv1.AdmissionRequest {
	request := &admissionv1.AdmissionRequest{}
	decoder := json.NewDecoder(bytes.NewReader(text[:min(len(text), maxBeginning)]))
	readMembers(decoder, func(name string) any {
		if name == "request" {
			readMembers(decoder, func(name string) any { return memberOf(request, name) })
			return nil
		}
		return new(json.RawMessage)
	})
	return request
}

// memberOf returns where to decode the member of the name.
func memberOf(request *admissionv1.AdmissionRequest, name string) any {
	switch name {
	case "namespace":
		return &request.Namespace
	case "name":
		return &request.Name
	case "operation":
		return &request.Operation
	case "userInfo":
		return &request.UserInfo
	case "dryRun":
		return &request.DryRun
	}
	return new(json.RawMessage)
}

// readMembers decodes the members of an object to where the function says. Nil means that it has done that.
func readMembers(decoder *json.Decoder, to func(name string) any) {
	if opening, err := decoder.Token(); err != nil || opening != json.Delim('{') {
		return
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return
		}
		name, _ := token.(string)
		if value := to(name); value != nil && decoder.Decode(value) != nil {
			return
		}
	}
	_, _ = decoder.Token() // Its end.
}
