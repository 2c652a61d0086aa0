package forrst

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Encode returns v as JSON. Unlike [json.Marshal] it leaves "<", ">" and "&" as
// they are: nothing here ends up in HTML, and an echoed text should look as sent.
func Encode(v any) (json.RawMessage, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte{'\n'}), nil
}

// MustEncode is [Encode] for types that always can be encoded, such as structs of
// strings and numbers. It panics if v cannot.
func MustEncode(v any) json.RawMessage {
	raw, err := Encode(v)
	if err != nil {
		panic(fmt.Sprintf("forrst: encode %T: %v", v, err))
	}
	return raw
}
