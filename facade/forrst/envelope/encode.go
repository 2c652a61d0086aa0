package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"forrst.dev/lock-operator/lock/strictjson"
)

// Encode returns v as JSON. Unlike [json.Marshal] it leaves "<", ">" and "&" as they are: nothing here ends up in HTML, and
// an echoed text should look as sent.
func Encode(v any) (json.RawMessage, error) {
	e, ok := encoders.Get().(*encoder)
	if !ok {
		e = &encoder{}
		e.Encoder = json.NewEncoder(&e.buffer)
		e.SetEscapeHTML(false)
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

// MustEncode is [Encode] for types that always can be encoded, such as structs of strings and numbers. It panics if v cannot.
func MustEncode(v any) json.RawMessage {
	raw, err := Encode(v)
	if err != nil {
		panic(fmt.Sprintf("forrst: encode %T: %v", v, err))
	}
	return raw
}

// WithMember returns an object with one member set to value. All other members stay as they are, byte by byte and in their
// order. The member comes last: parsers that ignore case take it for another spelling of others, such as "Caller", and the
// last one counts. The object is that of a decoded message, or nil for an empty one; it is not changed.
func WithMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	changed := make([]byte, 1, len(object)+len(name)+len(value)+len(`{"":,}`))
	changed[0] = '{'
	add := func(quoted, value []byte) {
		if len(changed) > 1 {
			changed = append(changed, ',')
		}
		changed = append(append(append(changed, quoted...), ':'), value...)
	}
	// It cannot fail: object is part of a document that was parsed before.
	_ = strictjson.Each(object, func(quoted, other []byte) {
		if quoted != nil && string(strictjson.Unquote(quoted)) != name {
			add(quoted, other)
		}
	})
	add(appendText(nil, name), value)
	return append(changed, '}')
}
