/** Exchanges: bindings say which queues get a copy of a message. */
import type { Caller, CallOptions } from "./caller.js";
import { given, oneOf, texts } from "./check.js";
import { count, hex, type Message, messageInit, type Payload, repeatOf } from "./convert.js";
import { ExchangeService, ExchangeType, type Exchange as WireExchange } from "./gen/boltq/exchange/v1/exchange_pb.js";
import { pages } from "./pages.js";
import type { ReadOptions } from "./queues.js";

const PAGE = 1_000;

/** How an exchange chooses. */
export type ExchangeKind = "DIRECT" | "FANOUT" | "TOPIC" | "HEADERS";

const KINDS: readonly ExchangeKind[] = ["DIRECT", "FANOUT", "TOPIC", "HEADERS"];

/** An exchange as it is now. */
export interface ExchangeInfo {
  readonly name: string;
  readonly type: ExchangeKind;
  /** As it was declared; all exchanges are stored. */
  readonly durable: boolean;
  /** Gets what matches no binding; empty for none. */
  readonly alternateExchange: string;
  /** How many it has. */
  readonly bindings: number;
}

/** What an exchange is declared with. */
export interface DeclareOptions extends CallOptions {
  /** Kept and shown, without further effect. Default true. */
  readonly durable?: boolean | undefined;
  /** Gets what matches no binding. */
  readonly alternateExchange?: string | undefined;
}

/** Which messages a queue gets. */
export interface BindingOptions {
  /** Key or pattern, 0 to 255 bytes. */
  readonly bindingKey?: string | undefined;
  /** Of a headers exchange: what a message has to have. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Whether all of `headers` are wanted, and not just one. Default true. */
  readonly matchAll?: boolean | undefined;
}

/** A binding as it is. */
export interface BindingInfo {
  readonly queue: string;
  readonly bindingKey: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly matchAll: boolean;
}

/** What came of a publish to an exchange. */
export interface Routed {
  /** Of the publish; each copy has an id of its own. */
  readonly id: string;
  /** Queues that have a copy. 0: no binding matched, and the message is gone. */
  readonly routed: number;
}

/** `client.exchanges`. */
export class Exchanges {
  readonly #caller: Caller;

  /** For the client itself. @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Creates an exchange. One that exists with the same type stays as it is. */
  async declare(name: string, type: ExchangeKind, options: DeclareOptions = {}): Promise<ExchangeInfo> {
    const { durable = true, alternateExchange = "" } = given(options);
    const kind = ExchangeType[oneOf(type, KINDS, "type")];
    const request = { name, type: kind, durable, alternateExchange };
    const answer = await this.#caller.unary(ExchangeService.method.declare, request, "repeatable", options);
    return infoOf(name, answer.exchange);
  }

  /** Removes an exchange with its bindings. The queues stay. */
  async delete(name: string, options?: CallOptions): Promise<void> {
    await this.#caller.unary(ExchangeService.method.delete, { name }, "once", options);
  }

  /** Binds a queue, which is created when it does not exist. False: the binding was there. */
  async bind(exchange: string, queue: string, binding: BindingOptions = {}, options?: CallOptions): Promise<boolean> {
    const { bindingKey = "", headers = {}, matchAll = true } = given(binding, "binding");
    const request = { exchange, binding: { queue, bindingKey, headers: texts(headers, "headers"), matchAll } };
    const answer = await this.#caller.unary(ExchangeService.method.bind, request, "repeatable", options);
    return answer.created;
  }

  /** Removes all bindings of a queue with a key, and answers how many. */
  async unbind(exchange: string, queue: string, bindingKey = "", options?: CallOptions): Promise<number> {
    const request = { exchange, queue, bindingKey };
    const answer = await this.#caller.unary(ExchangeService.method.unbind, request, "repeatable", options);
    return count(answer.removed);
  }

  /**
   * Puts a copy of a message into every queue that a binding chooses. With an `idempotencyKey` it is repeated when that is needed, and
   * stored once. The client makes up no key here: without one it is not repeated if no answer comes, and the failure says that the outcome
   * is unknown (`notApplied` is false).
   */
  async publish(
    exchange: string,
    routingKey: string,
    message: Message | Payload,
    options?: CallOptions,
  ): Promise<Routed> {
    const request = { exchange, routingKey, message: messageInit(message) };
    const repeat = repeatOf(request.message);
    const answer = await this.#caller.unary(ExchangeService.method.publish, request, repeat, options);
    return { id: hex(answer.messageId), routed: count(answer.routed) };
  }

  /** All exchanges by name. */
  list(options: ReadOptions = {}): AsyncGenerator<ExchangeInfo, void, undefined> {
    const { linearizable = false } = given(options);
    return pages(async (pageToken) => {
      const request = { pageSize: PAGE, pageToken, linearizable };
      const answer = await this.#caller.unary(ExchangeService.method.list, request, "repeatable", options);
      return { items: answer.exchanges.map((each) => infoOf(each.name, each)), nextPageToken: answer.nextPageToken };
    });
  }

  /** The bindings of an exchange in the order of their keys. */
  bindings(exchange: string, options: ReadOptions = {}): AsyncGenerator<BindingInfo, void, undefined> {
    const { linearizable = false } = given(options);
    return pages(async (pageToken) => {
      const request = { exchange, pageSize: PAGE, pageToken, linearizable };
      const answer = await this.#caller.unary(ExchangeService.method.listBindings, request, "repeatable", options);
      const items = answer.bindings.map(({ queue, bindingKey, headers, matchAll }) => ({
        queue,
        bindingKey,
        headers,
        matchAll,
      }));
      return { items, nextPageToken: answer.nextPageToken };
    });
  }
}

function infoOf(name: string, wire: WireExchange | undefined): ExchangeInfo {
  const type = ExchangeType[wire?.type ?? ExchangeType.DIRECT] as ExchangeKind | "UNSPECIFIED";
  return {
    name: wire?.name ?? name,
    type: type === "UNSPECIFIED" ? "DIRECT" : type,
    durable: wire?.durable ?? false,
    alternateExchange: wire?.alternateExchange ?? "",
    bindings: count(wire?.bindings ?? 0n),
  };
}
