package routefile

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// tenThousandRules is a file such as a program would make of a large rule book: 1.8 MB.
func tenThousandRules() []byte {
	var b strings.Builder
	b.WriteString("routing: 1\nactions:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "  type_%d:\n    notification_engine:\n", i)
		for k := range 10 {
			fmt.Fprintf(&b, "      - when: payload.new_status == \"approved\" && payload.n == %d\n        do: notify\n"+
				"        with: {notification: approval, recipients: [citizen], channels: [portal, email, sms]}\n", k)
		}
	}
	return []byte(b.String())
}

func TestTenThousandRulesLoadSoon(t *testing.T) {
	text := tenThousandRules()
	begin := time.Now()
	f, err := Parse("routes.yaml", text, nil)
	took := time.Since(begin)
	if err != nil || len(f.Cells) != 1000 || len(f.Cells[999].Rules) != 10 {
		t.Fatalf("got %v", err)
	}
	if t.Logf("it took %v", took); took > 20*time.Second { // fifty times what is usual: not quadratic
		t.Errorf("it took %v", took)
	}
}

func BenchmarkParse(b *testing.B) {
	text := tenThousandRules()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("routes.yaml", text, nil); err != nil {
			b.Fatal(err)
		}
	}
}
