package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
)

// Encode returns v as JSON. Unlike [json.Marshal] it leaves "<", ">" and "&" as
// they are: nothing here ends up in HTML, and an echoed text should look as sent.
func Encode(v any) (json.RawMessage, error) {
	e, ok := encoders.Get().(*encoder)
	if !ok {
		e = newEncoder()
	}
	e.buffer.Reset()
	err := e.Encode(v)
	var raw json.RawMessage
	if err == nil {
		raw = bytes.Clone(bytes.TrimSuffix(e.buffer.Bytes(), []byte{'\n'}))
	}
	if e.buffer.Cap() <= maxIdleBuffer {
		encoders.Put(e)
	}
	return raw, err
}

// encoders are idle ones: a call encodes several small values.
var encoders sync.Pool

// maxIdleBuffer is the largest buffer that waits for its next use.
const maxIdleBuffer = 64 << 10

type encoder struct {
	*json.Encoder
	buffer bytes.Buffer
}

func newEncoder() *encoder {
	e := &encoder{}
	e.Encoder = json.NewEncoder(&e.buffer)
	e.SetEscapeHTML(false)
	return e
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
