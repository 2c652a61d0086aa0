package envelope

import "strings"

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer returns the RFC 6901 pointer to the value below parent that is reached by
// the member names and array indexes in segments. The pointer to a whole document,
// and so the first parent, is "".
func Pointer(parent string, segments ...string) string {
	var pointer strings.Builder
	pointer.WriteString(parent)
	for _, segment := range segments {
		pointer.WriteByte('/')
		if strings.ContainsAny(segment, "~/") {
			segment = pointerEscapes.Replace(segment)
		}
		pointer.WriteString(segment)
	}
	return pointer.String()
}
