// Requests over HTTP/2 by Node, many at a time on one connection, and a body that is sent and comes back.
// usage: node http2.js CA URL
const fs = require('fs');
const http2 = require('http2');
const [ca, url] = process.argv.slice(2);

const session = http2.connect(url, { ca: fs.readFileSync(ca) });
session.on('error', (error) => { console.log('session:', error.message); process.exit(1); });

function ask(head, body) {
  return new Promise((resolve, reject) => {
    const stream = session.request(head);
    let status = 0;
    const chunks = [];
    stream.on('response', (fields) => { status = fields[':status']; });
    stream.on('data', (chunk) => chunks.push(chunk));
    stream.on('end', () => resolve([status, Buffer.concat(chunks)]));
    stream.on('error', reject);
    stream.end(body);
  });
}

(async () => {
  const lengths = Array.from({ length: 30 }, (_, number) => 10000 + number);
  const answers = await Promise.all(lengths.map((length) => ask({ ':path': `/bytes/${length}` })));
  const right = answers.filter(([status, body], at) => status === 200 && body.length === lengths[at]).length;
  console.log(`node: ${right} right of ${lengths.length}`);
  const sent = Buffer.alloc(300000, 'x');
  const [status, body] = await ask({ ':method': 'POST', ':path': '/echo' }, sent);
  console.log('node: echo', status, body.equals(sent));
  session.close();
})();
