package envelope

import "unicode/utf8"

// AppendRequest appends the encoded request to dst. What comes from a request that was
// decoded, such as its arguments, is copied byte by byte, which is also quicker than
// [Encode].
func AppendRequest(dst []byte, request *Request) []byte {
	dst = append(dst, `{"protocol":{"name":`...)
	dst = appendText(dst, request.Protocol.Name)
	dst = append(dst, `,"version":`...)
	dst = appendText(dst, request.Protocol.Version)
	dst = append(dst, `},"id":`...)
	dst = appendText(dst, request.ID)
	dst = append(dst, `,"call":{"function":`...)
	dst = appendText(dst, request.Call.Function)
	if request.Call.Version != "" {
		dst = append(dst, `,"version":`...)
		dst = appendText(dst, request.Call.Version)
	}
	dst = appendMember(dst, "arguments", request.Call.Arguments)
	dst = append(dst, '}')
	dst = appendMember(dst, "context", request.Context)
	for i := range request.Extensions {
		separator := `,"extensions":[{"urn":`
		if i > 0 {
			separator = `,{"urn":`
		}
		dst = append(dst, separator...)
		dst = appendText(dst, request.Extensions[i].URN)
		dst = appendMember(dst, "options", request.Extensions[i].Options)
		dst = append(dst, '}')
	}
	if len(request.Extensions) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendMember appends a member that is not the first of its object, unless raw is
// empty.
func appendMember(dst []byte, name string, raw []byte) []byte {
	if len(raw) == 0 {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return append(dst, raw...)
}

// appendText appends a string.
func appendText(dst []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return append(dst, MustEncode(text)...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, text...)
	return append(dst, '"')
}
