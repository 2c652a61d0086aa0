package forrst

import "encoding/json"

// WithMember returns an object with one member set to value. All other members stay as
// they are, byte by byte and in their order. The object is that of a decoded message,
// or nil for an empty one; it is not changed.
func WithMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	scan := scanner{data: object}
	var members []rawMember
	if len(object) > 0 && object[0] == '{' {
		// The scan cannot fail: object is part of a document that was scanned before.
		_ = scan.object(func(name, value []byte) { members = append(members, rawMember{name, value}) })
	}
	changed := make([]byte, 1, len(object)+len(name)+len(value)+len(`{"":,}`))
	changed[0] = '{'
	isSet := false
	for _, member := range members {
		if string(unquote(member.name)) == name {
			if isSet {
				continue
			}
			isSet, member.value = true, value
		}
		changed = member.appendTo(changed)
	}
	if !isSet {
		changed = rawMember{appendText(nil, name), value}.appendTo(changed)
	}
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
