/**
 * Reads `google.rpc.ErrorInfo`, in which a server says why a call failed. It has three fields and is read by hand, which spares the
 * package the protos of Google.
 */
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/** Why a call failed, for programs. */
export interface ErrorInfo {
  /** Stable name. */
  readonly reason: string;
  /** Who gave it: `"boltq"`. */
  readonly domain: string;
  /** What else is known. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** The value of an encoded `google.rpc.ErrorInfo`. */
export function readErrorInfo(bytes: Uint8Array): ErrorInfo {
  let reason = "";
  let domain = "";
  const metadata: Record<string, string> = {};
  fields(bytes, (field, reader) => {
    if (field === 1) reason = reader.string();
    else if (field === 2) domain = reader.string();
    else if (field === 3) {
      const [key, value] = entry(reader.bytes());
      metadata[key] = value;
    } else return false;
    return true;
  });
  return { reason, domain, metadata };
}

function entry(bytes: Uint8Array): [string, string] {
  let key = "";
  let value = "";
  fields(bytes, (field, reader) => {
    if (field === 1) key = reader.string();
    else if (field === 2) value = reader.string();
    else return false;
    return true;
  });
  return [key, value];
}

/** Calls `take` with each field whose value has a length; it answers whether it has read the value. */
function fields(bytes: Uint8Array, take: (field: number, reader: BinaryReader) => boolean): void {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (type !== WireType.LengthDelimited || !take(field, reader)) reader.skip(type, field);
  }
}
