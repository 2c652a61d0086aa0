package rest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
)

// drawer draws JSON texts that a schema accepts. It knows the keywords that the schemas of requests have.
type drawer struct{ *rand.Rand }

// value returns a text of one of the values, in one of its spellings.
func (d drawer) value(schema *openapi3.Schema) string {
	if len(schema.AnyOf) > 0 {
		return d.value(schema.AnyOf[d.IntN(len(schema.AnyOf))].Value)
	}
	types := schema.Type.Slice()
	switch kind := types[d.IntN(len(types))]; kind {
	case "null":
		return "null"
	case "integer", "number":
		return d.number(schema, kind == "integer")
	case "string":
		return d.quoted(d.text(schema))
	case "object":
		var members []string
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			if slices.Contains(schema.Required, name) || d.IntN(3) > 0 {
				members = append(members, fmt.Sprintf("%q%s:%s", name, d.oneOf("", " ", "\n\t"), d.value(schema.Properties[name].Value)))
			}
		}
		d.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		return "{" + strings.Join(members, d.oneOf(",", " , ")) + "}"
	default:
		panic("the drawer knows no type " + kind)
	}
}

func (d drawer) oneOf(texts ...string) string { return texts[d.IntN(len(texts))] }

// number returns one of the bounds or one between them.
func (d drawer) number(schema *openapi3.Schema, isInteger bool) string {
	low, high := *schema.Min, *schema.Max
	number := low + d.Float64()*(high-low)
	switch d.IntN(5) {
	case 0:
		number = low
	case 1:
		number = high
	case 2:
		number = low + d.Float64()*min(2, high-low)
	}
	if isInteger || d.IntN(3) == 0 {
		if whole := float64(int64(number)); whole >= low {
			number = whole
		}
	}
	form := []byte("fgeE")[d.IntN(4)]
	text := strconv.FormatFloat(number, form, -1, 64)
	if !strings.ContainsAny(text, ".eE") && d.IntN(2) == 0 {
		text += d.oneOf(".0", ".000", "e0", "E+0")
	}
	return text
}

// odd are characters that readers of JSON, of paths and of keys may mistake.
var odd = []rune("a-k09 .:/%?#&+\"\\<>'\x00\n\t\u00a0ü\u0308\u200b日\u2028\ufffd\ufffe\U0001F512\U0010FFFF")

// text returns a text, usually a short one.
func (d drawer) text(schema *openapi3.Schema) string {
	least, most := int(schema.MinLength), 1<<10
	if schema.MaxLength != nil {
		most = int(*schema.MaxLength)
	}
	for {
		var text strings.Builder
		if schema.Pattern != "" {
			pattern, err := syntax.Parse(schema.Pattern, syntax.Perl)
			if err != nil {
				panic(err)
			}
			d.match(pattern, &text)
		} else {
			length := least + d.IntN(min(20, most-least+1))
			if d.IntN(10) == 0 {
				length = most
			}
			for range length {
				text.WriteRune(odd[d.IntN(len(odd))])
			}
		}
		if length := utf8.RuneCountInString(text.String()); length >= least && length <= most {
			return text.String()
		}
	}
}

// match writes a text that the pattern matches.
func (d drawer) match(pattern *syntax.Regexp, text *strings.Builder) {
	repeat := func(least, most int) {
		if pattern.Sub[0].Op == syntax.OpCharClass && d.IntN(4) == 0 {
			most = min(most, 60)
		} else {
			most = min(most, least+3)
		}
		for range least + d.IntN(most-least+1) {
			d.match(pattern.Sub[0], text)
		}
	}
	switch pattern.Op {
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpEmptyMatch:
	case syntax.OpLiteral:
		text.WriteString(string(pattern.Rune))
	case syntax.OpCharClass:
		text.WriteRune(d.member(pattern.Rune))
	case syntax.OpConcat:
		for _, part := range pattern.Sub {
			d.match(part, text)
		}
	case syntax.OpAlternate:
		d.match(pattern.Sub[d.IntN(len(pattern.Sub))], text)
	case syntax.OpCapture:
		d.match(pattern.Sub[0], text)
	case syntax.OpQuest:
		repeat(0, 1)
	case syntax.OpStar:
		repeat(0, 60)
	case syntax.OpPlus:
		repeat(1, 60)
	case syntax.OpRepeat:
		repeat(pattern.Min, pattern.Max)
	default:
		panic("the drawer knows no " + pattern.Op.String())
	}
}

// member returns a character of a class, which has pairs of bounds: often an odd one.
func (d drawer) member(class []rune) rune {
	isIn := func(char rune) bool {
		for pair := range slices.Chunk(class, 2) {
			if char >= pair[0] && char <= pair[1] {
				return true
			}
		}
		return false
	}
	for range 10 {
		if char := odd[d.IntN(len(odd))]; isIn(char) {
			return char
		}
	}
	for {
		at := 2 * d.IntN(len(class)/2)
		if char := class[at] + d.Int32N(class[at+1]-class[at]+1); utf8.ValidRune(char) {
			return char
		}
	}
}

// quoted returns a JSON string, of which it may escape each character.
func (d drawer) quoted(text string) string {
	if d.IntN(4) > 0 {
		quoted, err := json.Marshal(text)
		if err != nil {
			panic(err)
		}
		return string(quoted)
	}
	var quoted strings.Builder
	for _, char := range text {
		if char > 0xffff {
			char -= 0x10000
			fmt.Fprintf(&quoted, `\u%04x\u%04X`, 0xd800+char>>10, 0xdc00+char&0x3ff)
			continue
		}
		fmt.Fprintf(&quoted, `\u%04x`, char)
	}
	return `"` + quoted.String() + `"`
}
