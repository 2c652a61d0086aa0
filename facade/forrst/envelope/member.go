package envelope

import "encoding/json"

// WithMember returns an object with one member set to value. All other members stay as
// they are, byte by byte and in their order. The member comes last: parsers that ignore
// case take it for another spelling of others, such as "Caller", and the last one counts.
// The object is that of a decoded message, or nil for an empty one; it is not changed.
func WithMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	changed := make([]byte, 1, len(object)+len(name)+len(value)+len(`{"":,}`))
	changed[0] = '{'
	if len(object) > 0 && object[0] == '{' {
		scan := scanner{data: object}
		// The scan cannot fail: object is part of a document that was scanned before.
		_ = scan.object(func(quoted, other []byte) {
			if string(unquote(quoted)) != name {
				changed = rawMember{quoted, other}.appendTo(changed)
			}
		})
	}
	changed = rawMember{appendText(nil, name), value}.appendTo(changed)
	return append(changed, '}')
}

// rawMember is a member as it is written, the name with its quotes.
type rawMember struct{ name, value []byte }

func (m rawMember) appendTo(object []byte) []byte {
	if len(object) > 1 {
		object = append(object, ',')
	}
	object = append(object, m.name...)
	object = append(object, ':')
	return append(object, m.value...)
}
