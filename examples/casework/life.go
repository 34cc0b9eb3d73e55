package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// life is what a case goes through, as it is planned.
type life struct {
	number    int
	story     string
	first     int // day of the plan
	caseID    string
	reference string
	service   string
	citizen   resident
	office    office
	version1  bool // its case_created is of version 1
	documents []document
	paymentID string
	batchID   string
	cents     int64
}

// resident is a citizen.
type resident struct {
	id, district, address string
	sms                   bool
}

type document struct {
	id, kind, file string
	size           int
}

// newLife makes up a case. All of it follows from the random source and from the run, which tells the cases of one
// run from those of another.
func newLife(r *rand.Rand, run string, number int) *life {
	id := func(what string) string { return derived(run, what, strconv.Itoa(number)) }
	l := &life{
		number: number, caseID: id("case"), office: offices[r.IntN(len(offices))],
		service: []string{"general_assistance", "child_allowance", "medical_assistance"}[r.IntN(3)], paymentID: id("payment"),
		cents: 50_000 + 2_500*r.Int64N(100), version1: number%16 == 9,
	}
	l.citizen = resident{id: id("citizen"), address: fmt.Sprintf("%d Waterkant, run %s", number+1, run), sms: r.IntN(10) < 7, district: l.office.district}
	if r.IntN(4) > 0 { // most apply where they work, not where they live
		l.citizen.district = "Coronie"
	}
	for _, kind := range needed[l.service] {
		l.documents = append(l.documents, document{id(kind), kind, fmt.Sprintf("%s_%04d.pdf", kind, number), 100_000 + r.IntN(400_000)})
	}
	return l
}

// handler is who works on the case.
func (l *life) handler() actor {
	return staff(roleHandler, l.office.id, l.number%handlersEach).acting()
}

func (l *life) supervisor() actor { return staff(roleSupervisor, l.office.id, 0).acting() }

func (l *life) fraudOfficer() user { return staff(roleFraud, centralOffice, l.number%2) }

// applicant is the citizen, as events name one.
func (l *life) applicant() actor {
	return actor{UserID: l.citizen.id, Role: "citizen", Channel: "portal", IPHash: hashIP(fmt.Sprintf("192.0.2.%d", l.number%250))}
}

func (l *life) amount() amount { return amount{float64(l.cents) / 100, "SRD"} }
