// Plays dialogues of examples/ with plain generated stubs and checks what they expect.
//
//	story [-server http://127.0.0.1:7420] ../../examples/agent.en.jsonl
//
// The same files are played by the clients in every language and by `strata replay`. `quickStart` shows typed calls.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	longterm "strata.example/gen/strata/longterm/v1"
	router "strata.example/gen/strata/router/v1"
	session "strata.example/gen/strata/session/v1"
	working "strata.example/gen/strata/working/v1"
)

// timeout of one call.
const timeout = 30 * time.Second

// clients are the stubs over one connection.
type clients struct {
	working  working.WorkingMemoryServiceClient
	session  session.SessionMemoryServiceClient
	longterm longterm.LongTermMemoryServiceClient
	router   router.RouterServiceClient
}

// dial connects; https:// means TLS. STRATA_CA_FILE, STRATA_CERTIFICATE_FILE and STRATA_PRIVATE_KEY_FILE are as for `strata ctl`.
func dial(server string) (*grpc.ClientConn, error) {
	security := grpc.WithInsecure()
	address := strings.TrimPrefix(server, "http://")
	if strings.HasPrefix(server, "https://") {
		address = strings.TrimPrefix(server, "https://")
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if ca := os.Getenv("STRATA_CA_FILE"); ca != "" {
			pem, err := os.ReadFile(ca)
			if err != nil {
				return nil, err
			}
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("%s holds no certificate", ca)
			}
		}
		if certificate := os.Getenv("STRATA_CERTIFICATE_FILE"); certificate != "" {
			own, err := tls.LoadX509KeyPair(certificate, os.Getenv("STRATA_PRIVATE_KEY_FILE"))
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{own}
		}
		security = grpc.WithTransportCredentials(credentials.NewTLS(config))
	}
	return grpc.Dial(address, security, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4<<20)))
}

// call gives a call its deadline and its credential.
func call() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	if token := os.Getenv("STRATA_API_KEY"); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	return ctx, cancel
}

// reason reads ErrorInfo.reason of a failed call: what code decides by. STRATA's ErrorReason documents each.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == "strata" {
			return info.Reason
		}
	}
	return ""
}

// newID makes a request id: the server answers a repetition with the same id as it answered first.
func newID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// quickStart: what the user says becomes a turn, then a fact, then context for a model.
func quickStart(c clients) error {
	ctx, cancel := call()
	defer cancel()
	user, said := "go-quick-start-"+newID(), "From now on, my cost centre is A-100."
	appended, err := c.session.AppendTurns(ctx, &session.AppendTurnsRequest{
		UserId: user, SessionId: "monday", RequestId: newID(),
		Turns: []*session.NewTurn{{Role: session.Role_ROLE_USER, Text: said}},
	})
	if err != nil {
		return err
	}
	turn := &longterm.TurnRef{SessionId: "monday", Seq: appended.Seqs[0]}
	_, err = c.longterm.Remember(ctx, &longterm.RememberRequest{
		UserId: user, RequestId: newID(),
		Statement: &longterm.Statement{
			Kind: longterm.Kind_KIND_FACT, Key: "work.cost_centre", Content: said,
			Source: longterm.Source_SOURCE_USER_STATEMENT, SourceQuote: said,
			SourceRef: &longterm.SourceRef{Kind: &longterm.SourceRef_Turn{Turn: turn}},
			Trigger:   longterm.Trigger_TRIGGER_USER_REQUEST,
		},
	})
	if err != nil {
		return err
	}
	assembled, err := c.router.AssembleContext(ctx, &router.AssembleContextRequest{UserId: user, Input: "Which cost centre is mine?"})
	if err != nil {
		return err
	}
	if !strings.Contains(assembled.Text, "A-100") {
		return errors.New("the context does not hold the cost centre")
	}
	return nil
}

// An rpc takes and gives JSON over a typed stub.
type rpc func(ctx context.Context, fields map[string]any) (proto.Message, string, error)

// of makes an rpc of a stub's method. User and request id are filled in where the request has them.
func of[Q any, A proto.Message](method func(context.Context, *Q, ...grpc.CallOption) (A, error)) rpc {
	return func(ctx context.Context, fields map[string]any) (proto.Message, string, error) {
		message := any(new(Q)).(proto.Message)
		known := message.ProtoReflect().Descriptor().Fields()
		for name, value := range map[string]string{"user_id": fields["user_id"].(string), "request_id": newID()} {
			if known.ByName(protoreflect.Name(name)) == nil {
				delete(fields, name)
			} else if _, given := fields[name]; !given {
				fields[name] = value
			}
		}
		text, err := json.Marshal(fields)
		if err != nil {
			return nil, "", err
		}
		if err := protojson.Unmarshal(text, message); err != nil {
			return nil, "", err
		}
		answer, err := method(ctx, any(message).(*Q))
		if err != nil {
			return nil, "", err
		}
		shown, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(answer)
		return answer, string(shown), err
	}
}

// rpcs are the methods that dialogues call.
func rpcs(c clients) map[string]rpc {
	return map[string]rpc{
		"CreateTask": of(c.working.CreateTask), "GetTask": of(c.working.GetTask), "EndTask": of(c.working.EndTask),
		"UpdateTodos": of(c.working.UpdateTodos), "AppendDigest": of(c.working.AppendDigest),
		"WorkingMemoryService/PutFacts": of(c.working.PutFacts), "SessionMemoryService/PutFacts": of(c.session.PutFacts),
		"AppendTurns":                   of(c.session.AppendTurns), "GetSession": of(c.session.GetSession), "ListTurns": of(c.session.ListTurns),
		"CompressSession": of(c.session.CompressSession), "GetWindow": of(c.session.GetWindow), "EndSession": of(c.session.EndSession),
		"Remember": of(c.longterm.Remember), "Propose": of(c.longterm.Propose), "LookupMemory": of(c.longterm.LookupMemory),
		"GetHistory": of(c.longterm.GetHistory), "ForgetMemories": of(c.longterm.ForgetMemories),
		"Promote": of(c.router.Promote), "GetOwnership": of(c.router.GetOwnership), "AssembleContext": of(c.router.AssembleContext),
	}
}

// A step is one line of a dialogue.
type step struct {
	Type, Dialogue, ID, Session, Speaker, Role, Text, Task, RPC, Refused string
	Request                                                              map[string]any
	Save                                                                 map[string]string
	Expect                                                               struct{ Contains, Absent []string }
}

type player struct {
	clients clients
	rpcs    map[string]rpc
	user    string
	saved   map[string]any
	at      string
	met     int
	unmet   []string
}

func (p *player) play(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	p.saved = map[string]any{"promotion": newID()}
	for number := 1; lines.Scan(); number++ {
		var s step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("%s:%d: %w", file, number, err)
		}
		p.at = fmt.Sprintf("%s:%d %s%s", file, number, s.RPC, s.ID)
		switch s.Type {
		case "meta":
			p.user = s.Dialogue
		case "turn":
			turn := map[string]any{"role": "ROLE_" + strings.ToUpper(s.Role), "text": s.Text, "speaker": s.Speaker, "external_id": s.ID}
			s.RPC = "AppendTurns"
			s.Request = map[string]any{"session_id": s.Session, "turns": []any{turn}}
			p.call(s)
		case "call":
			p.call(s)
		case "query":
			p.query(s)
		}
	}
	return lines.Err()
}

func (p *player) call(s step) {
	method, ok := p.rpcs[s.RPC]
	if !ok {
		p.check(false, "this client calls no "+s.RPC)
		return
	}
	fields := p.fill(s.Request).(map[string]any)
	if _, given := fields["user_id"]; !given {
		fields["user_id"] = p.user
	}
	ctx, cancel := call()
	defer cancel()
	_, shown, err := method(ctx, fields)
	if err != nil || s.Refused != "" {
		p.check(err != nil && s.Refused != "" && reason(err) == s.Refused, fmt.Sprintf("got %v, expected %q", err, s.Refused))
		return
	}
	var answer any
	if err := json.Unmarshal([]byte(shown), &answer); err != nil {
		p.check(false, err.Error())
		return
	}
	for name, pointer := range s.Save {
		value := answer
		for _, part := range strings.Split(strings.Trim(pointer, "/"), "/") {
			object, ok := value.(map[string]any)
			if value = object[part]; !ok || value == nil {
				p.check(false, "the answer has no "+pointer)
			}
		}
		p.saved[name] = value
	}
	p.expect(s, shown)
}

func (p *player) query(s step) {
	ctx, cancel := call()
	defer cancel()
	request := &router.AssembleContextRequest{UserId: p.user, Input: s.Text, SessionId: s.Session, TaskId: s.Task}
	assembled, err := p.clients.router.AssembleContext(ctx, request)
	if err != nil {
		p.check(false, err.Error())
		return
	}
	text := ""
	for _, block := range assembled.Blocks {
		if block.Name != "input" { // it repeats the question
			text += block.Text + "\n"
		}
	}
	p.expect(s, text)
}

func (p *player) expect(s step, text string) {
	for _, wanted := range s.Expect.Contains {
		p.check(strings.Contains(text, wanted), fmt.Sprintf("%q is missing", wanted))
	}
	for _, unwanted := range s.Expect.Absent {
		p.check(!strings.Contains(text, unwanted), fmt.Sprintf("%q must not be there", unwanted))
	}
}

func (p *player) check(holds bool, otherwise string) {
	if holds {
		p.met++
	} else {
		p.unmet = append(p.unmet, p.at+": "+otherwise)
	}
}

// fill puts saved values in the place of ${name}.
func (p *player) fill(value any) any {
	switch v := value.(type) {
	case string:
		if strings.HasPrefix(v, "${") {
			return p.saved[strings.Trim(v, "${}")]
		}
	case []any:
		for at := range v {
			v[at] = p.fill(v[at])
		}
	case map[string]any:
		for name := range v {
			v[name] = p.fill(v[name])
		}
	}
	return value
}

func main() {
	server := flag.String("server", os.Getenv("STRATA_SERVER"), "http://host:port or https://host:port; the credential is STRATA_API_KEY")
	flag.Parse()
	connection, err := dial(*server)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer connection.Close()
	c := clients{
		working.NewWorkingMemoryServiceClient(connection), session.NewSessionMemoryServiceClient(connection),
		longterm.NewLongTermMemoryServiceClient(connection), router.NewRouterServiceClient(connection),
	}
	p := &player{clients: c, rpcs: rpcs(c), at: "quick start"}
	err = quickStart(c)
	p.check(err == nil, fmt.Sprint(err))
	for _, file := range flag.Args() {
		if err := p.play(file); err != nil {
			p.unmet = append(p.unmet, err.Error())
		}
	}
	for _, line := range p.unmet {
		fmt.Fprintln(os.Stderr, "unmet:", line)
	}
	fmt.Printf("go: %d passed, %d failed\n", p.met, len(p.unmet))
	if len(p.unmet) > 0 {
		os.Exit(1)
	}
}
