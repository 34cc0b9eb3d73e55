package main

// story is a course that cases take.
type story struct {
	name   string
	weight int
	tell   func(*script)
	// suspect: it is found out to be like others, and held.
	suspect bool
}

// stories are all courses. The first cases of a run have one of each.
var stories = []story{
	{"granted", 40, func(s *script) { s.open().check().judge("ELIGIBLE").approve().pay(processed).end() }, false},
	{"ineligible", 10, func(s *script) { s.open().check().judge("INELIGIBLE").end() }, false},
	{"document rejected, and replaced", 8, func(s *script) {
		s.open().on(assign, wizard).next().on(refuse).next().on(replace).next().on(verify).next().
			judge("ELIGIBLE").approve().pay(processed).end()
	}, false},
	{"granted against the rules", 6, func(s *script) {
		s.open().check().judge("INELIGIBLE").on(override).next().approve().pay(processed).end()
	}, false},
	{"evaluated twice", 4, func(s *script) {
		s.open().check().judge("PENDING").judge("ELIGIBLE").approve().pay(processed).end()
	}, false},
	{"payment failed at first", 6, func(s *script) {
		s.open().check().judge("ELIGIBLE").approve().pay(failed, processed).end()
	}, false},
	{"payment given up, then made by hand", 3, func(s *script) {
		s.open().check().judge("ELIGIBLE").approve().pay(failed, failed, failed, processed).end()
	}, false},
	{"reopened", 5, func(s *script) {
		s.open().check().judge("INELIGIBLE").end().on(reopen).next().approve().pay(processed).end()
	}, false},
	{"document expired", 4, func(s *script) {
		s.open().check().on(expire).judge("ELIGIBLE").approve().pay(processed).end()
	}, false},
	{"rejected by the handler", 5, func(s *script) {
		s.open().check().judge("ELIGIBLE").on(change(stateUnderReview, stateRejected, "means_test", (*life).handler)).next().end()
	}, false},
	{"held, cleared and granted", 4, func(s *script) {
		s.open().on(investigate).next().on(exonerate, change(stateOnHold, stateIntake, "cleared", (*life).supervisor)).next().
			check().judge("ELIGIBLE").approve().pay(processed).end()
	}, true},
	{"held, and rejected as fraud", 3, func(s *script) {
		s.open().on(investigate).next().next().on(change(stateOnHold, stateRejected, "fraud", (*life).supervisor)).next().end()
	}, true},
	{"held, and approved by an administrator", 2, func(s *script) {
		s.open().on(investigate).next().on(change(stateOnHold, stateApproved, "approved_by_order", administrator), calculate).next().
			pay(processed).end()
	}, true},
	{"damaged by hand", 3, func(s *script) {
		s.open().check().judge("ELIGIBLE").on(damage).approve().pay(processed).end()
	}, false},
	{"decided twice", 1, func(s *script) {
		s.open().check().judge("ELIGIBLE").on(change(stateUnderReview, stateApproved, "means_test", (*life).handler),
			change(stateUnderReview, stateRejected, "means_test", (*life).supervisor), calculate).next().pay(processed).end()
	}, false},
}

// script puts the acts of a life into a plan, day by day. What follows from an act by the engines has happened by the
// next day.
type script struct {
	*life
	plan *plan
	day  int
}

// on has acts done on the day, in this order.
func (s *script) on(acts ...act) *script {
	day := s.plan.day(s.day)
	for _, a := range acts {
		day.acts = append(day.acts, planned{s.life, a})
	}
	return s
}

func (s *script) next() *script {
	s.day++
	return s
}

var wizard = change(stateIntake, stateValidation, "wizard_completed", (*life).handler)

// open is a day: the citizen applies.
func (s *script) open() *script {
	return s.on(lookUpCitizen(s.number%10 == 3), apply, upload).next()
}

// check is two days: a handler takes over, and verifies the documents.
func (s *script) check() *script { return s.on(assign, wizard).next().on(verify).next() }

// judge is a day: the eligibility service says what it thinks.
func (s *script) judge(result string) *script { return s.on(evaluate(result)).next() }

// approve is a day: the handler decides.
func (s *script) approve() *script {
	return s.on(change(stateUnderReview, stateApproved, "means_test", (*life).handler), calculate).next()
}

// What Subema says about a payment.
const (
	processed = true
	failed    = false
)

// pay is a day for the batch that the payment goes out in, and one for each answer of Subema.
func (s *script) pay(answers ...bool) *script {
	s.batchID = s.plan.batchID(s.day)
	today := s.plan.day(s.day)
	today.payments = append(today.payments, s.life)
	for i, answer := range answers {
		s.next()
		day := s.plan.day(s.day)
		day.answers = append(day.answers, subemaAnswer{s.life, answer, i + 1})
	}
	return s.next()
}

// end is a day: the handler closes the case.
func (s *script) end() *script { return s.on(finish("All is done.")).next() }
