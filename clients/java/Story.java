import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import com.google.rpc.ErrorInfo;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.PrototypeMarshaller;
import io.grpc.ServiceDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import strata.longterm.v1.LongTermMemoryServiceGrpc;
import strata.longterm.v1.Longterm;
import strata.router.v1.Router;
import strata.router.v1.RouterServiceGrpc;
import strata.session.v1.Session;
import strata.session.v1.SessionMemoryServiceGrpc;
import strata.working.v1.WorkingMemoryServiceGrpc;

/**
 * Plays dialogues of examples/ with plain generated stubs and checks what they expect. The same files are played by the
 * clients in every language and by `strata replay`. {@link #quickStart} shows typed calls.
 *
 * <pre>java Story [--server http://127.0.0.1:7420] ../../examples/agent.en.jsonl</pre>
 */
public final class Story {
  /** Seconds for one call. */
  private static final long TIMEOUT = 30;

  private static final List<ServiceDescriptor> SERVICES =
      List.of(
          WorkingMemoryServiceGrpc.getServiceDescriptor(),
          SessionMemoryServiceGrpc.getServiceDescriptor(),
          LongTermMemoryServiceGrpc.getServiceDescriptor(),
          RouterServiceGrpc.getServiceDescriptor());

  private final Channel channel;
  private final List<String> unmet = new ArrayList<>();
  private final Map<String, JsonElement> saved = new HashMap<>();
  private int met;
  private String user = "";
  private String at = "quick start";

  private Story(Channel channel) {
    this.channel = channel;
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> options = new HashMap<>();
    List<String> files = new ArrayList<>();
    for (int n = 0; n < args.length; n++) {
      if (args[n].startsWith("--") && n + 1 < args.length) {
        options.put(args[n].substring(2), args[++n]);
      } else {
        files.add(args[n]);
      }
    }
    String server = options.getOrDefault("server", System.getenv().getOrDefault("STRATA_SERVER", "http://127.0.0.1:7420"));
    ManagedChannel connection = connect(server);
    try {
      Metadata headers = new Metadata();
      String token = System.getenv("STRATA_API_KEY");
      if (token != null && !token.isEmpty()) {
        headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
      }
      Story story = new Story(ClientInterceptors.intercept(connection, MetadataUtils.newAttachHeadersInterceptor(headers)));
      story.quickStart();
      for (String file : files) {
        story.play(Path.of(file));
      }
      story.unmet.forEach(line -> System.err.println("unmet: " + line));
      System.out.printf("java: %d passed, %d failed%n", story.met, story.unmet.size());
      if (!story.unmet.isEmpty()) {
        System.exit(1);
      }
    } finally {
      connection.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }

  /** Connects; https:// means TLS. STRATA_CA_FILE, STRATA_CERTIFICATE_FILE, STRATA_PRIVATE_KEY_FILE are as for `strata ctl`. */
  private static ManagedChannel connect(String server) throws IOException {
    boolean secure = server.startsWith("https://");
    NettyChannelBuilder builder = NettyChannelBuilder.forTarget(server.replaceFirst("^https?://", ""));
    if (!secure) {
      return builder.usePlaintext().build();
    }
    var context = GrpcSslContexts.forClient();
    Map<String, String> environment = System.getenv();
    if (environment.containsKey("STRATA_CA_FILE")) {
      context.trustManager(new File(environment.get("STRATA_CA_FILE")));
    }
    if (environment.containsKey("STRATA_CERTIFICATE_FILE")) {
      File key = new File(environment.get("STRATA_PRIVATE_KEY_FILE"));
      context.keyManager(new File(environment.get("STRATA_CERTIFICATE_FILE")), key);
    }
    return builder.sslContext(context.build()).build();
  }

  /** ErrorInfo.reason of a failed call: what code decides by. Strata's ErrorReason documents each. */
  private static String reason(StatusRuntimeException failed) throws InvalidProtocolBufferException {
    com.google.rpc.Status status = StatusProto.fromThrowable(failed);
    for (Any detail : status == null ? List.<Any>of() : status.getDetailsList()) {
      if (detail.is(ErrorInfo.class) && detail.unpack(ErrorInfo.class).getDomain().equals("strata")) {
        return detail.unpack(ErrorInfo.class).getReason();
      }
    }
    return "";
  }

  /** What the user says becomes a turn, then a fact, then context for a model. */
  private void quickStart() {
    // A request id lets the server answer a repetition as it answered first.
    String owner = "java-quick-start-" + UUID.randomUUID();
    String said = "From now on, my cost centre is A-100.";
    var sessions = SessionMemoryServiceGrpc.newBlockingStub(channel).withDeadlineAfter(TIMEOUT, TimeUnit.SECONDS);
    var turn = Session.NewTurn.newBuilder().setRole(Session.Role.ROLE_USER).setText(said);
    var append = Session.AppendTurnsRequest.newBuilder().setUserId(owner).setSessionId("monday").addTurns(turn);
    int seq = sessions.appendTurns(append.setRequestId(UUID.randomUUID().toString()).build()).getSeqs(0);

    var memories = LongTermMemoryServiceGrpc.newBlockingStub(channel).withDeadlineAfter(TIMEOUT, TimeUnit.SECONDS);
    var where = Longterm.SourceRef.newBuilder().setTurn(Longterm.TurnRef.newBuilder().setSessionId("monday").setSeq(seq));
    var statement =
        Longterm.Statement.newBuilder()
            .setKind(Longterm.Kind.KIND_FACT)
            .setKey("work.cost_centre")
            .setContent(said)
            .setSource(Longterm.Source.SOURCE_USER_STATEMENT)
            .setSourceQuote(said)
            .setSourceRef(where)
            .setTrigger(Longterm.Trigger.TRIGGER_USER_REQUEST);
    var remember = Longterm.RememberRequest.newBuilder().setUserId(owner).setStatement(statement);
    memories.remember(remember.setRequestId(UUID.randomUUID().toString()).build());

    var router = RouterServiceGrpc.newBlockingStub(channel).withDeadlineAfter(TIMEOUT, TimeUnit.SECONDS);
    var ask = Router.AssembleContextRequest.newBuilder().setUserId(owner).setInput("Which cost centre is mine?");
    check(router.assembleContext(ask.build()).getText().contains("A-100"), "the context does not hold the cost centre");
  }

  private void play(Path file) throws IOException {
    saved.put("promotion", new JsonPrimitive(UUID.randomUUID().toString()));
    int number = 0;
    for (String line : Files.readAllLines(file, StandardCharsets.UTF_8)) {
      JsonObject step = JsonParser.parseString(line).getAsJsonObject();
      at = file.getFileName() + ":" + ++number;
      switch (step.get("type").getAsString()) {
        case "meta" -> user = step.get("dialogue").getAsString();
        case "turn" -> turn(step);
        case "call" -> call(step, step.get("rpc").getAsString(), fill(step.get("request")).getAsJsonObject());
        case "query" -> query(step);
        default -> check(false, "an unknown step");
      }
    }
  }

  private void turn(JsonObject step) throws IOException {
    JsonObject said = new JsonObject();
    said.addProperty("role", "ROLE_" + step.get("role").getAsString().toUpperCase());
    said.add("text", step.get("text"));
    said.add("speaker", step.get("speaker"));
    said.add("external_id", step.get("id"));
    JsonObject request = new JsonObject();
    request.add("session_id", step.get("session"));
    request.add("turns", new JsonArray());
    request.getAsJsonArray("turns").add(said);
    call(step, "AppendTurns", request);
  }

  private void query(JsonObject step) {
    var request = Router.AssembleContextRequest.newBuilder().setUserId(user).setInput(step.get("text").getAsString());
    request.setSessionId(step.has("session") ? step.get("session").getAsString() : "");
    request.setTaskId(step.has("task") ? step.get("task").getAsString() : "");
    var router = RouterServiceGrpc.newBlockingStub(channel).withDeadlineAfter(TIMEOUT, TimeUnit.SECONDS);
    StringBuilder text = new StringBuilder();
    for (Router.ContextBlock block : router.assembleContext(request.build()).getBlocksList()) {
      if (!block.getName().equals("input")) { // it repeats the question
        text.append(block.getText()).append('\n');
      }
    }
    expect(step, text.toString());
  }

  private void call(JsonObject step, String rpc, JsonObject fields) throws IOException {
    String refused = step.has("refused") ? step.get("refused").getAsString() : "";
    MethodDescriptor<Message, Message> method = method(rpc);
    Message empty = ((PrototypeMarshaller<Message>) method.getRequestMarshaller()).getMessagePrototype();
    for (var entry : Map.of("user_id", user, "request_id", UUID.randomUUID().toString()).entrySet()) {
      if (empty.getDescriptorForType().findFieldByName(entry.getKey()) != null && !fields.has(entry.getKey())) {
        fields.addProperty(entry.getKey(), entry.getValue());
      }
    }
    Message.Builder request = empty.newBuilderForType();
    JsonFormat.parser().merge(fields.toString(), request);
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(TIMEOUT, TimeUnit.SECONDS);
    Message answer;
    try {
      answer = ClientCalls.blockingUnaryCall(channel, method, options, request.build());
    } catch (StatusRuntimeException failed) {
      check(!refused.isEmpty() && reason(failed).equals(refused), failed + ", expected " + (refused.isEmpty() ? "an answer" : refused));
      return;
    }
    if (!refused.isEmpty()) {
      check(false, "was not refused with " + refused);
    }
    String shown = JsonFormat.printer().preservingProtoFieldNames().print(answer);
    if (step.has("save")) {
      for (var entry : step.getAsJsonObject("save").entrySet()) {
        JsonElement value = JsonParser.parseString(shown);
        for (String part : entry.getValue().getAsString().substring(1).split("/")) {
          value = value.getAsJsonObject().get(part);
        }
        saved.put(entry.getKey(), value);
      }
    }
    expect(step, shown);
  }

  /** The method with a name, or with the name of its service before it. */
  @SuppressWarnings("unchecked") // every method of these services takes and gives messages
  private static MethodDescriptor<Message, Message> method(String rpc) {
    for (ServiceDescriptor service : SERVICES) {
      for (MethodDescriptor<?, ?> method : service.getMethods()) {
        String name = method.getFullMethodName();
        if (name.endsWith("/" + rpc) || name.endsWith("." + rpc)) {
          return (MethodDescriptor<Message, Message>) method;
        }
      }
    }
    throw new IllegalArgumentException("no RPC is called " + rpc);
  }

  private void expect(JsonObject step, String text) {
    JsonObject expected = step.has("expect") ? step.getAsJsonObject("expect") : new JsonObject();
    for (JsonElement wanted : expected.has("contains") ? expected.getAsJsonArray("contains") : new JsonArray()) {
      check(text.contains(wanted.getAsString()), wanted + " is missing");
    }
    for (JsonElement unwanted : expected.has("absent") ? expected.getAsJsonArray("absent") : new JsonArray()) {
      check(!text.contains(unwanted.getAsString()), unwanted + " must not be there");
    }
  }

  private void check(boolean holds, String otherwise) {
    if (holds) {
      met++;
    } else {
      unmet.add(at + ": " + otherwise);
    }
  }

  /** Puts saved values in the place of ${name}. */
  private JsonElement fill(JsonElement value) {
    if (value.isJsonPrimitive() && value.getAsString().startsWith("${")) {
      return saved.get(value.getAsString().substring(2, value.getAsString().length() - 1));
    }
    if (value.isJsonArray()) {
      JsonArray filled = new JsonArray();
      value.getAsJsonArray().forEach(item -> filled.add(fill(item)));
      return filled;
    }
    if (value.isJsonObject()) {
      JsonObject filled = new JsonObject();
      value.getAsJsonObject().entrySet().forEach(entry -> filled.add(entry.getKey(), fill(entry.getValue())));
      return filled;
    }
    return value;
  }
}
