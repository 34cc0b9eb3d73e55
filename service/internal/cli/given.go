package cli

import "github.com/waybill-go/waybill/service/internal/ledger"

// givenNames are what events were called by which a command was given them: the database may have the event's row in the
// ledger, but nothing that leads there from its envelope.
type givenNames struct {
	keep           int // how many of the latest it keeps at least; 0: all
	latest, before map[string]ledger.Name
}

func (g *givenNames) add(c ledger.Called) {
	if g.keep > 0 && len(g.latest) >= g.keep {
		g.before, g.latest = g.latest, nil
	}
	if g.latest == nil {
		g.latest = map[string]ledger.Name{}
	}
	g.latest[c.EnvelopeID] = c.Name
}

// name returns the zero Name for what was not given by one.
func (g *givenNames) name(envelopeID string) ledger.Name {
	if n, ok := g.latest[envelopeID]; ok {
		return n
	}
	return g.before[envelopeID]
}
