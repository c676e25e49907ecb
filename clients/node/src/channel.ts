/**
 * What the rest of the client wants from a transport: calls of gRPC over one connection to one address.
 *
 * A channel repeats nothing and knows no other address; `caller.ts` does. Its failures are {@link BoltqError}, with
 * `notApplied` where it is certain that the request did not reach the server.
 */
import type {
  DescMessage,
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";

/** What belongs to one attempt. */
export interface AttemptOptions {
  /** Milliseconds until the server may stop working on it; undefined: no deadline. */
  readonly timeoutMs?: number | undefined;
  /** Ends it early. */
  readonly signal?: AbortSignal | undefined;
}

/** Answers of the server as they come. */
export interface StreamCall<O extends DescMessage> {
  /** Fulfilled when the server has accepted the call: the head of its answer is there. Fails as `responses` does. */
  readonly opened: Promise<void>;
  /** What the server sends; throws a BoltqError when the stream fails. Read once. */
  readonly responses: AsyncIterable<MessageShape<O>>;
  /** Ends the stream at once, in both directions. */
  cancel(): void;
}

/** A stream in both directions. */
export interface BidiCall<I extends DescMessage, O extends DescMessage> extends StreamCall<O> {
  /** Sends a message; what the socket does not take yet waits in memory, so callers bound what they send. */
  send(message: MessageInitShape<I>): void;
  /** Says that nothing more will be sent. */
  finish(): void;
}

/** A connection that is made when it is needed, and again when it is gone. */
export interface Channel {
  /** Host and port. */
  readonly address: string;
  /** Whether a server has ever answered a call. */
  readonly answered: boolean;
  /** One request, one answer. */
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: AttemptOptions,
  ): Promise<MessageShape<O>>;
  /** One request, answers as they come. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: AttemptOptions,
  ): StreamCall<O>;
  /** Both as they come. */
  bidi<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    options: AttemptOptions,
  ): BidiCall<I, O>;
  /** Fulfilled when the server has what was sent and cancelled until now, or the connection is gone, or soon. */
  flush(): Promise<void>;
  /** Ends the connection and everything on it. */
  close(): void;
}
