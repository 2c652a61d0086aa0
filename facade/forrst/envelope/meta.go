package envelope

import (
	"bytes"
	"encoding/json"
)

// Meta is about the processing of a call rather than its outcome. The zero Meta says
// nothing.
type Meta struct {
	// Node names the replica that answered.
	Node string
	// Members is an object with what else there is, or nil. A node in it counts for less
	// than Node.
	Members json.RawMessage
}

// MarshalJSON implements [json.Marshaler].
func (m *Meta) MarshalJSON() ([]byte, error) {
	switch {
	case m.Node != "":
		return WithMember(m.Members, "node", appendText(nil, m.Node)), nil
	case len(m.Members) == 0:
		return []byte("{}"), nil
	}
	return m.Members, nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Meta) UnmarshalJSON(raw []byte) error {
	*m = *newMeta(bytes.Clone(raw))
	return nil
}

// newMeta reads an object. A node that is no text is none.
func newMeta(raw json.RawMessage) *Meta {
	var ignored Errors
	fields, _ := ReadObject(raw, "", &ignored)
	meta := &Meta{Members: raw}
	meta.Node, _ = fields.Text("node")
	return meta
}
