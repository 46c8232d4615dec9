use graphgrove_pool::ranges::*; use graphgrove_pool::trace::*;
fn main(){ let mut s=String::new(); use std::io::Read; let name=std::env::args().nth(1).unwrap(); flate2::read::GzDecoder::new(std::fs::File::open(name).unwrap()).read_to_string(&mut s).unwrap(); let t=Trace::parse(&s).unwrap();
 let mut r=Ranges::default(); r.add_region(RegionKind::Growing, 64<<30).unwrap(); let f=r.alloc(1,1).unwrap(); r.free(f.id).unwrap(); let mut b=vec![f.id;t.blocks()];
 let it:usize=std::env::args().nth(2).unwrap().parse().unwrap(); let st=std::time::Instant::now();
 for _ in 0..it{ for e in &t.events{ match *e{Event::Alloc{block,bytes,..}=>b[block as usize]=r.alloc(bytes,1).unwrap().id,Event::Free{block}=>{r.free(b[block as usize]).unwrap();},_=>{}}}}
 println!("{:.1} ns/pair",st.elapsed().as_secs_f64()*1e9/(it*t.blocks()) as f64);}
