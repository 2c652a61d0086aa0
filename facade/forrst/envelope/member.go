package envelope

import (
	"encoding/json"

	"forrst.dev/lock-operator/lock/strictjson"
)

// WithMember returns an object with one member set to value. All other members stay as
// they are, byte by byte and in their order. The member comes last: parsers that ignore
// case take it for another spelling of others, such as "Caller", and the last one counts.
// The object is that of a decoded message, or nil for an empty one; it is not changed.
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
