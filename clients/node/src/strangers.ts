/**
 * What answers at an address where no gRPC does: for a failure that says what is probably wrong. A wrong port, or TLS on one side only,
 * otherwise shows as a connection that breaks for no reason.
 *
 * A connection of its own is begun as gRPC begins one, and another one as HTTP/1.1 does, and the first bytes of the answers tell. It is done
 * only for a connection that broke before a server has ever answered on it. clients/README.md has what is told.
 */
import * as net from "node:net";

import { timerMs } from "./wait.js";

/** The preface of HTTP/2, and settings, which are none. */
const AS_HTTP2 = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");
/** The head of a frame: what is needed to tell anything from anything else. */
const HEAD_BYTES = 9;
const SETTINGS = 4;
const TLS_ALERT = 0x15;
const TLS_MAJOR = 3;

type Speaks = "tls" | "http/1" | "http/2" | "something else" | "nothing";

/** What is wrong with an address; undefined: nothing that could be told from here in this time. */
export async function strangerAt(address: string, secure: boolean, withinMs: number): Promise<string | undefined> {
  switch (await spokenAt(address, withinMs / 2)) {
    case "tls":
      return secure ? undefined : `${address} speaks TLS, and this client does not: switch it on with the option tls`;
    case "http/2":
      return secure
        ? `${address} does not speak TLS, and this client does: leave the option tls out, or give the port that is encrypted`
        : undefined;
    case "http/1":
      return httpOnly(address);
    case "something else":
      return `${address} speaks neither gRPC nor HTTP: it is probably the port of another protocol. gRPC is on 9091 if nothing else is configured`;
    case "nothing":
      return undefined;
  }
}

/** What is wrong with an address that speaks HTTP/1.1 and nothing later. */
export function httpOnly(address: string): string {
  return `${address} speaks HTTP/1.1 and not gRPC: it is probably the port of the HTTP API. gRPC is on 9091 if nothing else is configured`;
}

async function spokenAt(address: string, withinMs: number): Promise<Speaks> {
  const first = spoken(await answerTo(AS_HTTP2, address, withinMs));
  if (first !== "nothing" && first !== "something else") return first;
  // Servers of HTTP/1.1 may hang up on the other without a word.
  const request = Buffer.from(`GET / HTTP/1.1\r\nHost: ${address}\r\nConnection: close\r\n\r\n`);
  const second = spoken(await answerTo(request, address, withinMs));
  return second === "nothing" ? first : second;
}

function spoken(head: Buffer): Speaks {
  if (head.length === 0) return "nothing";
  if (head[0] === TLS_ALERT && head[1] === TLS_MAJOR) return "tls";
  if (head.toString("latin1").startsWith("HTTP/1.")) return "http/1";
  const stream = head.length >= HEAD_BYTES ? head.readUInt32BE(5) : undefined;
  return head[3] === SETTINGS && stream === 0 ? "http/2" : "something else";
}

/** The first bytes of what is answered; none if nothing is. */
function answerTo(request: Buffer, address: string, withinMs: number): Promise<Buffer> {
  const { hostname, port } = new URL(`tcp://${address}`);
  const host = hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
  return new Promise((resolve) => {
    let head = Buffer.alloc(0);
    const socket = net.connect({ host, port: Number(port), noDelay: true });
    const done = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(head);
    };
    const timer = setTimeout(done, timerMs(withinMs));
    socket.on("connect", () => socket.write(request));
    socket.on("data", (bytes) => {
      head = Buffer.concat([head, bytes.subarray(0, HEAD_BYTES)]);
      if (head.length >= HEAD_BYTES) done();
    });
    socket.on("error", done);
    socket.on("close", done);
  });
}
