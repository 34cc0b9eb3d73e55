package eventing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// Write writes a plan as JSON, a target a line, for [ReadPlan] and for people. It holds no
// payloads, but ids, types, ordering keys, and the texts of the selection.
func (p *Plan) Write(w io.Writer) error {
	head := *p
	head.Stores = nil
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	b := &bounded{w: bufio.NewWriter(w)}
	b.print(bytes.TrimSuffix(text, []byte(`null}`)))
	b.print([]byte("["))
	for i, s := range p.Stores {
		b.separate(i)
		b.print([]byte(`{"store":`))
		b.encode(s.Store)
		b.print([]byte(`,"targets":[`))
		for j, t := range s.Targets {
			b.separate(j)
			b.encode(t)
		}
		b.print([]byte("\n]}"))
	}
	b.print([]byte("]}\n"))
	if b.err != nil {
		return b.err
	}
	return b.w.Flush()
}

// bounded writes no more than ReadPlan reads. The first error stays.
type bounded struct {
	w   *bufio.Writer
	n   int
	err error
}

func (b *bounded) print(text []byte) {
	if b.n += len(text); b.n > maxPlanBytes && b.err == nil {
		b.err = fmt.Errorf("the plan is larger than %d MiB: make smaller ones with a limit", maxPlanBytes>>20)
	}
	if b.err == nil {
		_, b.err = b.w.Write(text)
	}
}

func (b *bounded) separate(i int) {
	if i > 0 {
		b.print([]byte(","))
	}
	b.print([]byte("\n"))
}

func (b *bounded) encode(v any) {
	text, err := json.Marshal(v)
	if b.err == nil {
		b.err = err
	}
	b.print(text)
}

// ReadPlan reads what [Plan.Write] has written. It refuses what it does not understand, all
// of it: unknown fields, another version, more than 64 MiB or 200,000 targets, targets that
// are there twice.
func ReadPlan(r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPlanBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	if len(text) > maxPlanBytes {
		return nil, fmt.Errorf("read the plan: it is larger than %d MiB", maxPlanBytes>>20)
	}
	if values(text) > maxPlanValues {
		return nil, fmt.Errorf("this is no plan: it has more than %d stores or %d targets", maxPlanStores, maxPlanTargets)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var p Plan
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("this is no plan: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("this is no plan: something follows it")
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("this is no plan: %w", err)
	}
	return &p, nil
}

// maxPlanValues are as many as the targets of the largest plan have, and some for its head.
var maxPlanValues = maxPlanTargets*(reflect.TypeFor[PlanTarget]().NumField()+1) + 100_000

// values counts the values of a JSON text, by what goes before each in its list or object. That is
// done before it is decoded: 64 MiB of empty targets become gigabytes.
func values(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			quoted = !quoted
		case ',', '[', '{':
			if !quoted {
				n++
			}
		}
	}
	return n
}
