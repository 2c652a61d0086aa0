// Package strictjson reads JSON that programs of others have sent, and collects what is wrong with it.
//
// It refuses what two parsers may read differently, since two parties that read different keys would guard different
// locks: names of members are compared exactly, a member that is read must not be given twice, text must be valid UTF-8
// without lone surrogates, and nothing may follow the document. Nesting is bounded, no text takes more than linear time,
// and values can be had as they were sent.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep objects and arrays of a document may be nested. It is the default of PHP's decoder, on which the
// reference implementation of Forrst rests.
const MaxDepth = 512

// SyntaxError says where a text stops being JSON.
type SyntaxError struct {
	// Position is an offset in bytes from the start of the text.
	Position int
	// Pointer is the RFC 6901 pointer to the value that is wrong, or its beginning. Empty if it is not within a member.
	Pointer string
	// Message repeats at most one character of the text, which may hold secrets.
	Message string
}

// Error implements error.
func (e *SyntaxError) Error() string { return e.Message }

const space = " \t\r\n"

// Each checks that text is one JSON value. It passes visit the members of an object, with their names as they are written,
// or the elements of an array, without a name. Both are parts of text. The error is a [*SyntaxError], which may be found
// after visit has been called.
func Each(text []byte, visit func(name, value []byte)) error {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return &SyntaxError{Message: "the text must not begin with a byte order mark"}
	}
	d, ok := decoders.Get().(*decoder)
	if !ok {
		d = &decoder{}
	}
	defer d.finish()
	d.input = *bytes.NewBuffer(text)
	d.Reset(&d.input, jsontext.AllowDuplicateNames(true)) // Members tells of those that matter.
	var name []byte
	for start := 0; ; {
		if _, err := d.ReadToken(); err != nil {
			return syntaxError(text, err)
		}
		end := int(d.InputOffset())
		switch depth := d.StackDepth(); {
		case depth > MaxDepth:
			return &SyntaxError{Position: end - 1, Message: fmt.Sprintf("nested more than %d levels deep", MaxDepth)}
		case depth == 1:
			for strings.IndexByte(space+":,", text[start]) >= 0 {
				start++
			}
			part := text[start:end]
			start = end
			switch kind, length := d.StackIndex(1); {
			case length == 0: // The value has only begun.
			case kind == '{' && length%2 == 1:
				name = part
			default:
				visit(name, part)
			}
		case depth == 0:
			if rest := bytes.TrimLeft(text[end:], space); len(rest) > 0 {
				return &SyntaxError{Position: len(text) - len(rest), Message: "unexpected data after the end of the document"}
			}
			return nil
		}
	}
}

// decoders are idle ones: a call reads several objects.
var decoders sync.Pool

type decoder struct {
	jsontext.Decoder

	input bytes.Buffer
}

// finish makes the decoder idle. It must not keep a text in memory.
func (d *decoder) finish() {
	d.input = bytes.Buffer{}
	d.Reset(&d.input)
	decoders.Put(d)
}

func syntaxError(text []byte, err error) *SyntaxError {
	fault, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{Position: len(text), Message: "unexpected end of JSON"}
	}
	message := fault.Err.Error()
	for _, kind := range []string{"invalid escape sequence", "invalid surrogate pair"} {
		if strings.HasPrefix(message, kind) {
			message = kind + " in a string" // Without what it quotes.
		}
	}
	return &SyntaxError{Position: int(fault.ByteOffset), Pointer: beginning([]byte(fault.JSONPointer)), Message: message}
}

// Unquote returns the text of a string, given with its quotes, in a text that [Each] has checked. It copies only what has
// escape sequences.
func Unquote(quoted []byte) []byte {
	if content := quoted[1 : len(quoted)-1]; bytes.IndexByte(content, '\\') < 0 {
		return content
	}
	unquoted, _ := jsontext.AppendUnquote(nil, quoted) // It cannot fail.
	return unquoted
}

// maxTold bounds what is told of names that nobody knows.
const maxTold = 128

func beginning(text []byte) string {
	return strings.ToValidUTF8(string(text[:min(len(text), maxTold)]), "")
}
