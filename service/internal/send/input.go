package send

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/waybill-go/waybill/internal/strictjson"
)

// maxInput bounds all inputs together, in bytes: they are held in memory.
const maxInput = 256 << 20

// item is an event to send.
type item struct {
	// raw is sent as it is: also what the gateway will refuse.
	raw []byte
	// where it stands in the input, such as "samples.ndjson:3".
	where string
	// id is its eventId, if it has one.
	id string
}

func newItem(raw []byte, where string) item {
	it := item{raw: raw, where: where}
	for key, value := range strictjson.Members(raw) {
		if key == "eventId" {
			it.id, _ = strictjson.String(value)
		}
	}
	return it
}

// renamed is the event of a later round: the same, under names of its own.
func (it item) renamed(round int) item {
	suffix := "#" + strconv.Itoa(round)
	out := make([]byte, 0, len(it.raw)+2*len(suffix))
	separator := byte('{')
	for key, value := range strictjson.Members(it.raw) {
		name, _ := json.Marshal(key) // a string always encodes
		out = append(append(append(out, separator), name...), ':')
		separator = ','
		if s, ok := strictjson.String(value); ok && (key == "eventId" || key == "idempotencyKey") {
			value, _ = json.Marshal(s + suffix)
		}
		out = append(out, value...)
	}
	if separator == '{' {
		return it // no object, or an empty one: nothing to rename
	}
	return newItem(append(out, '}'), it.where)
}

// load reads all inputs. It fails on the first that is not JSON, so that a
// mistyped file sends nothing.
func load(inputs []string, in io.Reader) ([]item, error) {
	l := loader{left: maxInput}
	for _, input := range inputs {
		if err := l.input(input, in); err != nil {
			return nil, fmt.Errorf("send: read %s: %w", input, err)
		}
	}
	if len(l.items) == 0 {
		return nil, errors.New("send: there is no event in the input")
	}
	return l.items, nil
}

type loader struct {
	items []item
	left  int64
}

func (l *loader) input(name string, in io.Reader) error {
	if name == "-" {
		return l.read(stdin(in), "stdin")
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return l.file(name)
	}
	entries, err := os.ReadDir(name) // sorted by name
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if ext := filepath.Ext(entry.Name()); entry.IsDir() || !slices.Contains([]string{".json", ".ndjson"}, ext) {
			continue
		}
		if err := l.file(filepath.Join(name, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return l.read(f, filepath.Base(name))
}

// read takes an array's elements, or else all the values that follow each
// other: that covers a single object as well as NDJSON.
func (l *loader) read(r io.Reader, name string) error {
	raw, err := io.ReadAll(io.LimitReader(r, l.left+1))
	if err != nil {
		return err
	}
	if l.left -= int64(len(raw)); l.left < 0 {
		return fmt.Errorf("the input exceeds %d MiB; send it in parts", maxInput>>20)
	}
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	decoder := json.NewDecoder(bytes.NewReader(raw))
	list := bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("["))
	if list {
		if _, err := decoder.Token(); err != nil {
			return err
		}
	}
	for {
		if list && !decoder.More() {
			return l.end(decoder, raw, name)
		}
		var event json.RawMessage
		err := decoder.Decode(&event)
		if err == io.EOF && !list {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: not JSON: %w", position(name, raw, decoder.InputOffset()), err)
		}
		start := decoder.InputOffset() - int64(len(event))
		l.items = append(l.items, newItem(event, position(name, raw, start)))
	}
}

// end takes the end of a list, after which there is nothing.
func (l *loader) end(decoder *json.Decoder, raw []byte, name string) error {
	if _, err := decoder.Token(); err != nil {
		return fmt.Errorf("%s: the list does not end: %w", position(name, raw, int64(len(raw))), err)
	}
	if rest := bytes.TrimSpace(raw[decoder.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("%s: there is more after the list", position(name, raw, decoder.InputOffset()))
	}
	return nil
}

// position names the line that offset is in.
func position(name string, raw []byte, offset int64) string {
	rest := raw[offset:]
	offset += int64(len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,")))
	return fmt.Sprintf("%s:%d", name, 1+bytes.Count(raw[:offset], []byte("\n")))
}
