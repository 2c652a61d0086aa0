package envelope

import "github.com/go-json-experiment/json/jsontext"

// Pointer returns the RFC 6901 pointer to the value below parent that is reached by
// the member names and array indexes in segments. The pointer to a whole document,
// and so the first parent, is "".
func Pointer(parent string, segments ...string) string {
	pointer := jsontext.Pointer(parent)
	for _, segment := range segments {
		pointer = pointer.AppendToken(segment)
	}
	return string(pointer)
}
