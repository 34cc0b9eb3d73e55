package middleware_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

func TestRecover(t *testing.T) {
	t.Parallel()
	boom := func(*message.Message) ([]*message.Message, error) { panic("boom") }
	produced, err := call(middleware.Recover, nil, boom)
	var p *eventing.PanicError
	if !errors.As(err, &p) || p.Value != "boom" || !strings.Contains(string(p.Stack), "recover_test.go") || produced != nil {
		t.Errorf("a panic becomes an error that says what and where: %v, %v", produced, err)
	}
	if stack := string(p.Stack); !strings.HasPrefix(stack, "panic(") || strings.Contains(stack, "debug.Stack") {
		t.Errorf("the stack begins where the handler has panicked:\n%s", stack)
	}
	if eventing.IsPermanent(err) {
		t.Error("a panic may pass: it is not permanent")
	}
	if produced, err := call(middleware.Recover, nil, produce("p1")); err != nil || len(produced) != 1 {
		t.Errorf("without a panic nothing changes: %v, %v", produced, err)
	}
	if _, err := call(middleware.Recover, nil, func(*message.Message) ([]*message.Message, error) { return nil, errBusy }); !errors.Is(err, errBusy) {
		t.Errorf("an error stays what it is: %v", err)
	}
}

func TestRecoverBoundsTheStack(t *testing.T) {
	t.Parallel()
	var deep func(n int)
	deep = func(n int) {
		if n == 0 {
			panic("boom")
		}
		deep(n - 1)
	}
	_, err := call(middleware.Recover, nil, func(*message.Message) ([]*message.Message, error) { deep(90); return nil, nil })
	var p *eventing.PanicError
	if !errors.As(err, &p) || len(p.Stack) > 4100 || len(p.Stack) < 2000 || !strings.HasSuffix(string(p.Stack), "\n...\n") {
		t.Errorf("the stack has %d bytes: %v", len(p.Stack), err)
	}
}
